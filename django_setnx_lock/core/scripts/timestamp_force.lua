-- Take the lock away from the holder the operator saw, and from nobody else.
-- KEYS  1 name  2 meta  3 gone (that holder's)  [4 index]
-- ARGV  1 token seen; the value, where that of another program was seen  2 who and why (JSON)  3 unit of the value
-- Reply {'OK', false}  {'CHANGED'} somebody else has it  {'FREE'} nobody has it
--- timestamp
if redis.call('GET', KEYS[3]) == ARGV[2] then
  -- Done before: the reply to an earlier copy of this request was lost.
  return {'OK', false}
end
local value, known = value_at(KEYS[1]), read_known(redis.call('GET', KEYS[2]))
local left = time_left(value, known, ARGV[3])
if left and left <= 0 then
  return {'FREE'}
end
if (stands(value, known) and known.token or value) ~= ARGV[1] then
  return {'CHANGED'}
end
remove(known, KEYS[4])
-- Remembered until the holder must have learned it: its lease would have ended by then.
redis.call('SET', KEYS[3], ARGV[2], 'PX', whole(math.max(math.ceil(left or 0), MEMORY)))
return {'OK', false}
