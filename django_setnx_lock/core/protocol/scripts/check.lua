-- Is the lock still mine? Writes nothing.
-- ARGV  1 token
-- Reply {'OK', remaining ms (-1: without end)}
--       {'LOST', how it was lost (JSON) or false}
--- keys
if redis.pcall('GET', NAME) == ARGV[1] then
  return {'OK', redis.call('PTTL', NAME)}
end
return {'LOST', redis.call('GET', TOMBSTONE)}
