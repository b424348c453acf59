-- Let the lock go if its value is still mine and not over. Sending it twice is as good as once.
-- KEYS  1 name  2 meta  3 gone (this token's)  [4 index]
-- ARGV  1 token
-- Reply {'OK', false}
--       {'LOST', how it was lost (JSON) or false, false}
--- timestamp
local mark, known = redis.call('GET', KEYS[3]), read_known(redis.call('GET', KEYS[2]))
if not mark and is_mine(value_at(KEYS[1]), known, ARGV[1]) then
  -- Deletes first: they are allowed, and make the rest allowed, on a server that is out of memory.
  remove(known, KEYS[4])
  redis.call('SET', KEYS[3], 'released', 'PX', MEMORY)
  return {'OK', false}
end
if not mark then
  -- Lost: a copy of the acquire that is still on the wire must not take it again. (Out of memory, it may.)
  redis.pcall('SET', KEYS[3], 'left', 'PX', MEMORY)
end
if mark == 'released' then
  return {'OK', false}
end
return {'LOST', mark, false}
