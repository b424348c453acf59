-- Give up an acquire whose outcome is unknown or no longer wanted: out of the queue, and the lock
-- with it if it was given to this token meanwhile. A copy still on the wire will be refused.
-- KEYS  1 name  2 gone (this token's)  3 waiters  [4 index]
-- ARGV  1 token  2 ms that the token is remembered
-- Reply {'OK'}
-- Deletes first: they are allowed, and make the SET allowed, on a server that is out of memory.
if token_at(KEYS[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1])
  if KEYS[4] then
    redis.call('ZREM', KEYS[4], KEYS[1])
  end
end
redis.call('ZREM', KEYS[3], ARGV[1])
redis.call('SET', KEYS[2], 'left', 'PX', ARGV[2])
return {'OK'}
