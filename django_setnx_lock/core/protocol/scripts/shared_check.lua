-- Is the share still mine? Writes nothing.
-- ARGV  1 token
-- Reply {'OK', remaining ms (-1: without end)[, holder record in which an operator asks it to stop]}
--       {'LOST', how it was lost (JSON) or false}
--- shared_keys
--- prelude
--- stopping
local value = token_at(NAME)
if value == ARGV[1] then
  -- Read within what a process above holds alone.
  return with_own_stop({'OK', redis.call('PTTL', NAME)}, ARGV[1])
end
local ends = group_at(value) and redis.call('ZSCORE', SHARES, ARGV[1])
if ends and ends - now_ms() > 0 then
  return with_stop({'OK', ends - now_ms()}, redis.pcall('HGET', HOLDERS, ARGV[1]))
end
return {'LOST', redis.call('GET', TOMBSTONE)}
