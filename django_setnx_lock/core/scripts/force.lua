-- Take the lock away from the holder the operator saw, and from nobody else.
-- KEYS  1 name  2 waiters  3 alive  4 gone (that holder's)  [5 index]
-- ARGV  1 token seen  2 who and why (JSON)
-- Reply {'OK', waiter that it was handed to, or false}  {'CHANGED'} somebody else has it  {'FREE'} nobody has it
--- prelude
if redis.call('GET', KEYS[4]) == ARGV[2] then
  -- Done before: the reply to an earlier copy of this request was lost.
  return {'OK', baton_for(token_at(KEYS[1])) or false}
end
local value = redis.pcall('GET', KEYS[1])
if not value or type(value) == 'table' then
  return {'FREE'}
end
-- Who has joined a group since it was seen is not known by what stands at the name.
if value ~= ARGV[1] or baton_for(value) or group_at(value) then
  return {'CHANGED'}
end
-- Remembered until the holder must have learned it: its lease would have ended by then.
local keep = math.max(redis.call('PTTL', KEYS[1]), MEMORY)
redis.call('DEL', KEYS[1])
redis.call('SET', KEYS[4], ARGV[2], 'PX', keep)
local head = hand_on()
if KEYS[5] and not head then
  redis.call('ZREM', KEYS[5], KEYS[1])
end
return {'OK', head}
