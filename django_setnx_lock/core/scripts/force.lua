-- Take the lock away from the holder the operator saw, and from nobody else.
-- KEYS  1 name  2 gone (that holder's)  [3 index]
-- ARGV  1 token seen  2 who and why (JSON)  3 ms that it is remembered, at the least
-- Reply {'OK'}  {'CHANGED'} somebody else has it  {'FREE'} nobody has it
if redis.call('GET', KEYS[2]) == ARGV[2] then
  -- Done before: the reply to an earlier copy of this request was lost.
  return {'OK'}
end
local value = token_at(KEYS[1])
if not value then
  return {'FREE'}
end
if value ~= ARGV[1] then
  return {'CHANGED'}
end
-- Remembered until the holder must have learned it: its lease would have ended by then.
local keep = math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[3]))
redis.call('DEL', KEYS[1])
redis.call('SET', KEYS[2], ARGV[2], 'PX', keep)
if KEYS[3] then
  redis.call('ZREM', KEYS[3], KEYS[1])
end
return {'OK'}
