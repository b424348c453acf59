-- Let the lock go if it is still mine. Sending it twice is as good as once.
-- KEYS  1 name  2 gone (this token's)  [3 index]
-- ARGV  1 token  2 ms that a released token is remembered
-- Reply {'OK'}
--       {'LOST', how it was lost (JSON) or false}
if token_at(KEYS[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1])
  redis.call('SET', KEYS[2], 'released', 'PX', ARGV[2])
  if KEYS[3] then
    redis.call('ZREM', KEYS[3], KEYS[1])
  end
  return {'OK'}
end
local mark = redis.call('GET', KEYS[2])
if mark == 'released' then
  return {'OK'}
end
if not mark then
  -- Lost: a copy of the acquire that is still on the wire must not take it again. (Out of memory, it may.)
  redis.pcall('SET', KEYS[2], 'left', 'PX', ARGV[2])
end
return {'LOST', mark}
