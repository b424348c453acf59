-- Is the lock still mine? Writes nothing.
-- ARGV  1 token
-- Reply {'OK', remaining ms (-1: without end)[, holder record in which an operator asks it to stop]}
--       {'LOST', how it was lost (JSON) or false}
--- keys
--- reading
--- stopping
if redis.pcall('GET', NAME) == ARGV[1] then
  return with_own_stop({'OK', redis.call('PTTL', NAME)}, ARGV[1])
end
return {'LOST', redis.call('GET', TOMBSTONE)}
