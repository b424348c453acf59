-- Give the lease more time if the lock is still mine.
-- KEYS  1 name  2 meta  3 gone (this token's)  [4 index]
-- ARGV  1 token  2 ms  3 'replace' what is left, have 'least' so much, or add to it: 'add ID', once for each ID
-- Reply {'OK', ms the lease now has}
--       {'LOST', how it was lost (JSON) or false}
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then
  return {'LOST', redis.call('GET', KEYS[3])}
end
local lease, left, noted = tonumber(ARGV[2]), redis.call('PTTL', KEYS[1]), nil
if ARGV[3] == 'least' then
  lease = math.max(lease, left)
elseif ARGV[3] ~= 'replace' then
  --- reading
  --- adding
  local meta = redis.call('GET', KEYS[2])
  local _, owner, record = read_meta(meta)
  noted = owner == POLLING .. ARGV[1] and note(ARGV[3], meta, record)
  if noted == KNOWN then
    return {'OK', math.max(left, 0)}
  end
  lease = math.max(left, 0) + lease
end
-- First a write that is allowed: it makes the rest allowed, on a server that is out of memory.
redis.call('PEXPIRE', KEYS[1], whole(lease))
if noted then
  redis.call('SET', KEYS[2], noted, 'KEEPTTL')
end
if redis.call('PTTL', KEYS[2]) < lease + META_MARGIN then
  redis.call('PEXPIRE', KEYS[2], whole(lease + META_MARGIN))
end
if KEYS[4] then
  local time = redis.call('TIME')
  redis.call('ZADD', KEYS[4], whole(time[1] * 1000 + math.floor(time[2] / 1000) + lease), KEYS[1])
end
return {'OK', lease}
