-- Is the lock still mine? Writes nothing.
-- KEYS  1 name  2 waiters  3 alive  4 gone (this token's)
-- ARGV  1 token
-- Reply {'OK', remaining ms (-1: without end)}
--       {'LOST', how it was lost (JSON) or false}
if redis.pcall('GET', KEYS[1]) == ARGV[1] then
  return {'OK', redis.call('PTTL', KEYS[1])}
end
return {'LOST', redis.call('GET', KEYS[4])}
