-- Let the lock go if it is still mine. Sending it twice is as good as once.
-- ARGV  1 token  2 ''
-- Reply {'OK', false}
--       {'LOST', how it was lost (JSON) or false, false}
--- unqueued
local mark, known = redis.call('GET', KEYS[3]), known_beside()
if not mark and is_mine(text(redis.pcall('GET', KEYS[1])), known, ARGV[1]) then
  -- Deletes first: they are allowed, and make the rest allowed, on a server that is out of memory.
  remove(known)
  unlist()
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
