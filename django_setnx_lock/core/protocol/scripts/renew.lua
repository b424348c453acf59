-- Have at least so much of the lease left if the lock is still mine. What is left is never cut.
-- ARGV  1 token  2 ms
--       [3 'given': the lock waits for another process to take it over, so the record names none that must live]
-- Reply {'OK', ms the lease now has[, holder record in which an operator asks it to stop]}
--       {'LOST', how it was lost (JSON) or false}
--- keys
--- prelude
--- stopping
if token_at(NAME) ~= ARGV[1] then
  return {'LOST', redis.call('GET', TOMBSTONE)}
end
local left = redis.call('PTTL', NAME)
local lease = math.max(left, ARGV[2] + 0)
-- First a write that is allowed: it makes the rest allowed, on a server that is out of memory.
redis.call('PEXPIRE', NAME, lease)
if ARGV[3] then
  local fence, owner, record = read_meta(token_at(META))
  if owner == ARGV[1] then
    -- Of two values of one name in JSON the latter counts.
    record = string.gsub(record, '}$', ',"process":"","renewed":false}')
    redis.call('SET', META, table.concat({whole(fence), #owner, owner, record}, ' '), 'KEEPTTL')
  end
end
grow(META, lease + META_MARGIN)
if INDEX then
  redis.call('ZADD', INDEX, now_ms() + lease, NAME)
end
return with_own_stop({'OK', lease}, ARGV[1])
