-- Take the lock away from the holder the operator saw, and from nobody else.
-- ARGV  1 who and why (JSON)  2 token seen  3 how many ms may be left of its lease, or ''
-- Reply {'OK', waiter that it was handed to, or false}  {'RENEWED'} more is left of the lease
--       {'CHANGED'} somebody else has it  {'FREE'} nobody has it
--- keys
--- prelude
if redis.pcall('GET', TOMBSTONE) == ARGV[1] then
  -- Done before: the reply to an earlier copy of this request was lost.
  return {'OK', baton_for(token_at(NAME)) or false}
end
local value = redis.pcall('GET', NAME)
if not value or type(value) == 'table' then
  return {'FREE'}
end
-- Who has joined a group since it was seen is not known by what stands at the name.
if value ~= ARGV[2] or baton_for(value) or group_at(value) then
  return {'CHANGED'}
end
if ARGV[3] ~= '' and redis.call('PTTL', NAME) > tonumber(ARGV[3]) then
  return {'RENEWED'}
end
-- Remembered until the holder must have learned it: its lease would have ended by then.
local keep = math.max(redis.call('PTTL', NAME), MEMORY)
redis.call('DEL', NAME)
redis.call('SET', TOMBSTONE, ARGV[1], 'PX', keep)
let_go(value)
-- Taken it is, whatever a key beside it may be: else nobody could tell that it was.
local head = false
pcall(function()
  head = hand_on()
end)
if INDEX and not head then
  redis.pcall('ZREM', INDEX, NAME)
end
return {'OK', head}
