-- Take the lock away from the holder the operator saw, and from nobody else. Nobody is woken.
-- KEYS  1 name  2 meta  3 gone (that holder's)  [4 index]
-- ARGV  1 token seen  2 who and why (JSON)
-- Reply {'OK', false}  {'CHANGED'} somebody else has it  {'FREE'} nobody has it
--- reading
if redis.call('GET', KEYS[3]) == ARGV[2] then
  -- Done before: the reply to an earlier copy of this request was lost.
  return {'OK', false}
end
local value = redis.pcall('GET', KEYS[1])
if not value or type(value) == 'table' then
  return {'FREE'}
end
if value ~= ARGV[1] or baton_for(value) then
  return {'CHANGED'}
end
-- Remembered until the holder must have learned it: its lease would have ended by then.
local keep = math.max(redis.call('PTTL', KEYS[1]), MEMORY)
redis.call('DEL', KEYS[1])
redis.call('SET', KEYS[3], ARGV[2], 'PX', whole(keep))
if KEYS[4] then
  redis.call('ZREM', KEYS[4], KEYS[1])
end
return {'OK', false}
