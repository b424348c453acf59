-- Give a share more time if it is still held.
-- ARGV  1 token  2 ms  3 'replace' what is left, have 'least' so much, or add to it: 'add ID', once for each ID
-- Reply {'OK', ms the lease now has[, holder record in which an operator asks it to stop]}
--       {'LOST', how it was lost (JSON) or false}
--- shared_keys
--- prelude
--- shared
--- stopping
local token = ARGV[1]
local value, group = standing(token_at(NAME))
local left
if value == token then
  left = redis.call('PTTL', NAME)
elseif group then
  left = redis.call('ZSCORE', SHARES, token)
  left = left and left - now_ms()
end
if not left then
  return {'LOST', redis.call('GET', TOMBSTONE)}
end
local function granted(ms)
  local reply = {'OK', ms}
  return group and with_stop(reply, redis.pcall('HGET', HOLDERS, token)) or with_own_stop(reply, token)
end
local lease, noted = tonumber(ARGV[2]), nil
if ARGV[3] == 'least' then
  lease = math.max(left, lease)
elseif ARGV[3] ~= 'replace' then
  --- adding
  local known = group and redis.call('HGET', HOLDERS, token) or token_at(META)
  local _, owner, record = read_meta(known)
  if group then
    record = string.match(known or '', '^%d+ (.*)$')
  elseif owner ~= token then
    record = nil
  end
  noted = record and note(ARGV[3], known, record)
  if noted == KNOWN then
    return granted(left)
  end
  lease = left + lease
end
-- First a write that is allowed: it makes the rest allowed, on a server that is out of memory.
grow(META, META_MARGIN)
if group then
  redis.call('ZADD', SHARES, whole(now_ms() + lease), token)
  if noted then
    redis.call('HSET', HOLDERS, token, noted)
  end
  settle(value, last_fence())
else
  redis.call('PEXPIRE', META, whole(lease + margin_of_meta(left)))
  redis.call('PEXPIRE', NAME, whole(lease))
  if noted then
    redis.call('SET', META, noted, 'KEEPTTL')
  end
  if INDEX then
    redis.call('ZADD', INDEX, whole(now_ms() + lease), NAME)
  end
end
if ARGV[3] == 'replace' then
  -- What was left may have been cut: the next who waits was told of more.
  wake_if_later(lease)
end
return granted(lease)
