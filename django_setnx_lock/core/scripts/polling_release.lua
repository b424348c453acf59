-- Let the lock go if it is still mine. Sending it twice is as good as once.
-- KEYS  1 name  2 meta  3 gone (this token's)  [4 index]
-- ARGV  1 token
-- Reply {'OK', false}
--       {'LOST', how it was lost (JSON) or false, false}
if redis.pcall('GET', KEYS[1]) == ARGV[1] then
  -- Deletes first: they are allowed, and make the rest allowed, on a server that is out of memory.
  redis.call('DEL', KEYS[1])
  if KEYS[4] then
    redis.call('ZREM', KEYS[4], KEYS[1])
  end
  redis.call('SET', KEYS[3], 'released', 'PX', MEMORY)
  return {'OK', false}
end
local mark = redis.call('GET', KEYS[3])
if not mark then
  -- Lost: a copy of the acquire that is still on the wire must not take it again. (Out of memory, it may.)
  redis.pcall('SET', KEYS[3], 'left', 'PX', MEMORY)
end
if mark == 'released' then
  return {'OK', false}
end
return {'LOST', mark, false}
