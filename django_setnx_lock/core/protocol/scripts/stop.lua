-- Ask the holder that the operator saw to stop: in its holder record, whose last member "stop" then is. It hears when it renews.
-- ARGV  1 token seen  2 by whom and why (JSON); the time is added, in ms
-- Reply {'OK'}  {'BEFORE'} somebody has asked it before, or this was sent twice  {'CHANGED'} somebody else has it  {'FREE'} nobody
--- lib
local value, group = standing()
local fence, record = fence_of(value, group, token)
local open = record and string.match(record, '^({".*)}$')
if not open then
  return {value and 'CHANGED' or 'FREE'}
elseif string.find(record, ',"stop":{', 1, true) then
  return {'BEFORE'}
end
record = open .. ',"stop":' .. string.sub(ARGV[2], 1, -2) .. ',"at":' .. whole(now) .. '}}'
if group then
  redis.call('HSET', HOLDERS, token, whole(fence) .. ' ' .. record)
else
  redis.call('SET', META, whole(fence) .. ' ' .. token .. ' ' .. record, 'KEEPTTL')
end
return {'OK'}
