-- Take the lock: SET name token NX PX lease, with its fence, its holder record and its place in the index.
-- KEYS  1 name  2 waiters  3 alive  4 gone (this token's)  5 meta  [6 index]
-- ARGV  1 token  2 lease ms  3 what is written after the fence: ' LENGTH-OF-TOKEN TOKEN RECORD'
--       4 ms until the caller asks again at the latest (0: this caller does not wait, or no longer)
--       [5 lease ms that it will have: sent ahead, this takes only what was left to the token]
-- Reply {'OK', fence}
--       {'BUSY', ms left (-1: never expires), 'ours', holder record}
--       {'BUSY', ms left, 'group', record of one of them}  several hold it together; perhaps one of them is
--       still to take it up
--       {'BUSY', ms left, 'baton'}    it is being handed on
--       {'BUSY', ms left, 'foreign', holder record or nothing}  (it is known of one who wakes nobody)
--       {'GONE'}  this token was released, given up or forced out before
--       {'AHEAD'}  sent ahead, and there is nothing to take up yet: nothing was done
-- Error WRONGTYPE when the name holds no string

-- A free lock that nobody waits for, or one handed to this token, not given up before: most are.
local token, value = ARGV[1], redis.call('GET', KEYS[1])
local claims = value == BATON .. token
local is_mine, next_waiter
if claims then
  is_mine = redis.call('EXISTS', KEYS[4]) == 0
  next_waiter = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
elseif not value and not ARGV[5] then
  is_mine = redis.call('EXISTS', KEYS[2], KEYS[3], KEYS[4]) == 0
end
if is_mine and next_waiter then
  -- To be woken if it would sleep beyond the lease, or dropped if dead: see below.
  local alive, again = string.match(redis.call('HGET', KEYS[3], next_waiter) or '', '^(%d+) %d+ (%d+)$')
  local time = redis.call('TIME')
  local now = time[1] * 1000 + time[2] / 1000
  is_mine = alive and alive - now >= 0 and again - now <= (ARGV[5] or ARGV[2]) + 0
end
if is_mine then
  local meta, time = redis.call('GET', KEYS[5]), redis.call('TIME')
  local fence = time[1] .. string.sub('00000' .. time[2], -6)
  local last = meta and string.match(meta, '^%d+')
  if last and tonumber(last) >= tonumber(fence) then
    fence = whole(last + 1)
  end
  redis.call('SET', KEYS[5], fence .. ARGV[3], 'PX', whole(ARGV[2] + META_MARGIN))
  if claims then
    if next_waiter then
      redis.call('HDEL', KEYS[3], token)
    else
      redis.call('DEL', KEYS[3])
    end
  end
  if KEYS[6] then
    redis.call('ZADD', KEYS[6], whole(math.floor(fence / 1000) + ARGV[2]), KEYS[1])
    -- What nobody released is forgotten, by one in a hundred; who lacks the right for it goes on.
    if time[2] % 100 == 0 then
      redis.pcall('ZREMRANGEBYSCORE', KEYS[6], '-inf', whole(time[1] * 1000 - META_MARGIN))
    end
  end
  redis.call('SET', KEYS[1], token, 'PX', ARGV[2])
  return {'OK', fence}
end
if ARGV[5] then
  return {'AHEAD'}
end

--- prelude
local ENDLESS = 86400000 -- how long the index remembers a lock that never expires, since it was last met: a day
local lease, slice = tonumber(ARGV[2]), tonumber(ARGV[4])
local is_gone, meta = redis.call('EXISTS', KEYS[4]) == 1, redis.call('GET', KEYS[5])
if is_gone then
  -- Who does not wait is told of the holder all the same, should the first answer have been lost.
  if slice > 0 or not value or value == token or claims then
    return {'GONE'}
  end
end
if not value then
  local head = first_waiter()
  if head and head ~= token then
    give_baton(head)
    value = BATON .. head
  end
end
local fence, owner, holder = read_meta(meta)

if value and value ~= token and not claims then
  local left = redis.call('PTTL', KEYS[1])
  local how = baton_for(value) and 'baton' or owner == value and 'ours' or 'foreign'
  if how == 'ours' and group_at(value) then
    how, slice = 'group', math.min(slice, GROUP_SLICE)
    left = slice > 0 and math.min(left, slice) or left
  end
  if slice > 0 then
    queue_up(token, left, slice)
  elseif not is_gone then
    leave_queue(token)
    -- Given up here and now: a copy of this request that is still on the wire must not take the lock.
    redis.call('SET', KEYS[4], 'left', 'PX', MEMORY)
  end
  if KEYS[6] and how == 'foreign' then
    redis.call('ZADD', KEYS[6], now_ms() + (left < 0 and ENDLESS or left), KEYS[1])
  end
  local is_known = owner == value or owner == POLLING .. value
  return {'BUSY', left, how, is_known and holder or nil}
end

if value == token then
  -- Mine already: the reply to an earlier copy of this request was lost. The lease starts anew,
  -- but is not cut: this copy may be a late one, of a lock that was extended since.
  lease = math.max(lease, redis.call('PTTL', KEYS[1]))
end
if owner ~= token then
  fence = math.max(now_us(), (fence or 0) + 1)
  redis.call('SET', KEYS[5], whole(fence) .. ARGV[3], 'PX', lease + META_MARGIN)
else
  grow(KEYS[5], lease + META_MARGIN)
end
-- The mailbox stays: this copy may be a late one, and the caller about to listen there.
wake_sleeper(token)
leave_queue(token)
if redis.call('EXISTS', KEYS[2]) == 0 then
  redis.call('DEL', KEYS[3])
end
wake_if_later(lease)
if KEYS[6] then
  redis.call('ZADD', KEYS[6], now_ms() + lease, KEYS[1])
end
-- The lock itself comes last: an error above (a key of another type, a command denied) leaves none behind.
if value == token then
  redis.call('PEXPIRE', KEYS[1], lease)
elseif claims then
  -- The baton gives way.
  redis.call('SET', KEYS[1], token, 'PX', lease)
else
  redis.call('SET', KEYS[1], token, 'NX', 'PX', lease)
end
return {'OK', whole(fence)}
