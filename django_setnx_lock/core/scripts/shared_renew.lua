-- Give a share more time if it is still held.
-- KEYS  1 name  2 waiters  3 alive  4 gone (this token's)  5 meta  6 shares  7 holders  [8 index]
-- ARGV  1 token  2 ms  3 'replace' what is left, have 'least' so much, or add to it: 'add ID', once for each ID
-- Reply {'OK', ms the lease now has}
--       {'LOST', how it was lost (JSON) or false}
--- prelude
--- shared
local token = ARGV[1]
local value, group = standing(token_at(KEYS[1]))
local left
if value == token then
  left = redis.call('PTTL', KEYS[1])
elseif group then
  left = redis.call('ZSCORE', KEYS[6], token)
  left = left and left - now_ms()
end
if not left then
  return {'LOST', redis.call('GET', KEYS[4])}
end
local lease, noted = tonumber(ARGV[2]), nil
if ARGV[3] == 'least' then
  lease = math.max(left, lease)
elseif ARGV[3] ~= 'replace' then
  --- adding
  local known = group and redis.call('HGET', KEYS[7], token) or token_at(KEYS[5])
  local _, owner, record = read_meta(known)
  if group then
    record = string.match(known or '', '^%d+ (.*)$')
  elseif owner ~= token then
    record = nil
  end
  noted = record and note(ARGV[3], known, record)
  if noted == KNOWN then
    return {'OK', left}
  end
  lease = left + lease
end
-- First a write that is allowed: it makes the rest allowed, on a server that is out of memory.
grow(KEYS[5], lease + META_MARGIN)
if group then
  redis.call('ZADD', KEYS[6], whole(now_ms() + lease), token)
  if noted then
    redis.call('HSET', KEYS[7], token, noted)
  end
  settle(value, last_fence())
else
  redis.call('PEXPIRE', KEYS[1], whole(lease))
  if noted then
    redis.call('SET', KEYS[5], noted, 'KEEPTTL')
  end
  if KEYS[8] then
    redis.call('ZADD', KEYS[8], whole(now_ms() + lease), KEYS[1])
  end
end
if ARGV[3] == 'replace' then
  -- What was left may have been cut: the next who waits was told of more.
  wake_if_later(lease)
end
return {'OK', lease}
