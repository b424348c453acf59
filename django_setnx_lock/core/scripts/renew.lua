-- Give the lease more time if the lock is still mine.
-- KEYS  1 name  2 waiters  3 alive  4 gone (this token's)  5 meta  [6 index]
-- ARGV  1 token  2 ms  3 'replace' what is left, have 'least' so much, or add to it: 'add ID', once for each ID
-- Reply {'OK', ms the lease now has}
--       {'LOST', how it was lost (JSON) or false}
--- prelude
if token_at(KEYS[1]) ~= ARGV[1] then
  return {'LOST', redis.call('GET', KEYS[4])}
end
local lease, noted = tonumber(ARGV[2]), nil
if ARGV[3] == 'least' then
  lease = math.max(redis.call('PTTL', KEYS[1]), lease)
elseif ARGV[3] ~= 'replace' then
  --- adding
  local left = math.max(redis.call('PTTL', KEYS[1]), 0)
  local meta = token_at(KEYS[5])
  local _, owner, record = read_meta(meta)
  noted = owner == ARGV[1] and note(ARGV[3], meta, record)
  if noted == KNOWN then
    return {'OK', left}
  end
  lease = left + lease
end
-- First a write that is allowed: it makes the rest allowed, on a server that is out of memory.
redis.call('PEXPIRE', KEYS[1], lease)
if noted then
  redis.call('SET', KEYS[5], noted, 'KEEPTTL')
end
grow(KEYS[5], lease + META_MARGIN)
if KEYS[6] then
  redis.call('ZADD', KEYS[6], now_ms() + lease, KEYS[1])
end
if ARGV[3] == 'replace' then
  -- What was left may have been cut: the next who waits was told of more.
  wake_if_later(lease)
end
return {'OK', lease}
