-- Ask the holder whom the operator saw to stop, and nobody else. It keeps its share.
-- ARGV  1 ID of the request, who and why (JSON)  2 token seen
-- Reply {'OK'}  {'BEFORE'} it was asked before  {'CHANGED'} it does not have it  {'FREE'} nobody has it
--- shared_keys
--- prelude
--- shared
--- stopping
--- requesting
local value, group = standing(token_at(NAME))
if not value then
  return {'FREE'}
end
local token = ARGV[2]
local known = group and redis.call('ZSCORE', SHARES, token) and redis.call('HGET', HOLDERS, token)
local record = known and string.match(known, '^%d+ (.*)$')
if not record then
  return {'CHANGED'}
end
local noted = note_stop(known, record, ARGV[1])
if noted == NOTED_BEFORE then
  return {'BEFORE'}
end
if noted ~= NOTED then
  redis.call('HSET', HOLDERS, token, noted)
end
return {'OK'}
