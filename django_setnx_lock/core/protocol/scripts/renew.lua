-- Give the lease more time if the lock is still mine.
-- ARGV  1 token  2 ms  3 'replace' what is left, have 'least' so much, or add to it: 'add ID', once for each ID
--       [4 'given': the lock waits for another process to take it over, so the record names none that must live]
-- Reply {'OK', ms the lease now has[, holder record in which an operator asks it to stop]}
--       {'LOST', how it was lost (JSON) or false}
--- keys
--- prelude
--- noting
--- stopping
if token_at(NAME) ~= ARGV[1] then
  local mark, meta = redis.call('GET', TOMBSTONE), token_at(META) or ''
  local _, owner = read_meta(meta)
  -- Whoever remembers the loss first notes it.
  if owner == ARGV[1] and not has_let_go(meta) and remember_loss(owner) then
    note_end('lost', meta, '')
  end
  return {'LOST', mark}
end
local lease, left, noted = tonumber(ARGV[2]), redis.call('PTTL', NAME), nil
if ARGV[3] == 'least' then
  lease = math.max(left, lease)
elseif ARGV[3] ~= 'replace' then
  --- adding
  left = math.max(left, 0)
  local meta = token_at(META)
  local _, owner, record = read_meta(meta)
  noted = owner == ARGV[1] and note(ARGV[3], meta, record)
  if noted == KNOWN then
    return with_own_stop({'OK', left}, ARGV[1])
  end
  lease = left + lease
end
local margin = margin_of_meta(left)
-- First a write that is allowed: it makes the rest allowed, on a server that is out of memory.
redis.call('PEXPIRE', NAME, lease)
if noted then
  redis.call('SET', META, noted, 'KEEPTTL')
end
if ARGV[4] then
  local fence, owner, record = read_meta(token_at(META))
  if owner == ARGV[1] then
    -- Of two values of one name in JSON the latter counts.
    record = string.gsub(record, '}$', ',"process":"","renewed":false}')
    redis.call('SET', META, table.concat({whole(fence), #owner, owner, record}, ' '), 'KEEPTTL')
  end
end
redis.call('PEXPIRE', META, lease + margin)
if INDEX then
  redis.call('ZADD', INDEX, now_ms() + lease, NAME)
end
if ARGV[3] == 'replace' then
  -- What was left may have been cut: the next who waits was told of more.
  wake_if_later(lease)
end
return with_own_stop({'OK', lease}, ARGV[1])
