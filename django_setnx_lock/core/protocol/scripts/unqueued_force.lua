-- Take the lock away from the holder the operator saw, and from nobody else.
-- ARGV  1 who and why (JSON)  2 token seen; the value, where that of another program was seen
--       3 how many ms may be left of its lease, or ''  4 unit of a timestamp
-- Reply {'OK', false}  {'RENEWED'} more is left of the lease  {'CHANGED'} somebody else has it  {'FREE'} nobody has it
--- unqueued
if redis.pcall('GET', KEYS[3]) == ARGV[1] then
  -- Done before: the reply to an earlier copy of this request was lost.
  return {'OK', false}
end
local value = text(redis.pcall('GET', KEYS[1]))
local known = read_known(text(redis.pcall('GET', KEYS[2])))
local left, wrong = time_left(value, known, ARGV[4])
if not left and not wrong then
  return {'FREE'}
end
if (stands(value, known) and known.token or value) ~= ARGV[2] or baton_for(value) then
  return {'CHANGED'}
end
if ARGV[3] ~= '' and left > tonumber(ARGV[3]) then
  return {'RENEWED'}
end
remove(known)
if KEYS[4] then
  redis.pcall('ZREM', KEYS[4], KEYS[1])
end
-- Remembered until the holder must have learned it: its lease would have ended by then.
redis.call('SET', KEYS[3], ARGV[1], 'PX', whole(math.max(math.ceil(left or 0), MEMORY)))
return {'OK', false}
