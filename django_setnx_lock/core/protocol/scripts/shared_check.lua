-- Is the share still mine? Writes nothing.
-- ARGV  1 token
-- Reply {'OK', remaining ms (-1: without end)}
--       {'LOST', how it was lost (JSON) or false}
--- shared_keys
--- prelude
local value = token_at(NAME)
if value == ARGV[1] then
  return {'OK', redis.call('PTTL', NAME)}
end
local ends = group_at(value) and redis.call('ZSCORE', SHARES, ARGV[1])
if ends and ends - now_ms() > 0 then
  return {'OK', ends - now_ms()}
end
return {'LOST', redis.call('GET', TOMBSTONE)}
