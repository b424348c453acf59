-- Is the share still mine? Writes nothing.
-- KEYS  1 name  2 waiters  3 alive  4 gone (this token's)  5 meta  6 shares
-- ARGV  1 token
-- Reply {'OK', remaining ms (-1: without end)}
--       {'LOST', how it was lost (JSON) or false}
--- prelude
local value = token_at(KEYS[1])
if value == ARGV[1] then
  return {'OK', redis.call('PTTL', KEYS[1])}
end
local ends = group_at(value) and redis.call('ZSCORE', KEYS[6], ARGV[1])
if ends and ends - now_ms() > 0 then
  return {'OK', ends - now_ms()}
end
return {'LOST', redis.call('GET', KEYS[4])}
