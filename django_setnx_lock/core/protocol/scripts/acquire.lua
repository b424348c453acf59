-- Take the lock: SET name token NX PX lease, with its fence, its holder record and its place in the index.
-- ARGV  1 token  2 lease ms  3 what is written after the fence: ' LENGTH-OF-TOKEN TOKEN RECORD'
--       4 ms until the caller asks again at the latest (0: this caller does not wait, or no longer; -1: nor can a
--       copy of a request of this token be under way)
-- Reply {'OK', fence}
--       {'BUSY', ms left (-1: never expires), 'ours', holder record, ms since the grant}
--       {'BUSY', ms left, 'group', record of one of them}  several hold it together; perhaps one of them is
--       still to take it up
--       {'BUSY', ms left, 'baton'}    it is being handed on
--       {'BUSY', ms left, 'foreign', holder record or nothing}  (it is known of one who wakes nobody)
--       {'GONE'}  this token was released, given up or forced out before
-- Error WRONGTYPE when the name holds no string
--- keys

-- A free lock that nobody waits for, or one handed to this token, not given up before: most are.
local token, value = ARGV[1], redis.call('GET', NAME)
local claims = value == BATON .. token
local is_mine, next_waiter
if claims then
  is_mine = redis.call('EXISTS', TOMBSTONE) == 0
  next_waiter = redis.call('ZRANGE', WAITERS, 0, 0)[1]
elseif not value then
  is_mine = redis.call('EXISTS', WAITERS, ALIVE, TOMBSTONE) == 0
end
if is_mine and next_waiter then
  -- To be woken if it would sleep beyond the lease, or dropped if dead: see below.
  local alive, again = string.match(redis.call('HGET', ALIVE, next_waiter) or '', '^(%d+) %d+ (%d+)$')
  local time = redis.call('TIME')
  local now = time[1] * 1000 + time[2] / 1000
  is_mine = alive and alive - now >= 0 and again - now <= ARGV[2] + 0
end
local meta = is_mine and redis.call('GET', META)
if is_mine and not (meta and not has_let_go(meta)) then
  local time = redis.call('TIME')
  local fence = time[1] .. string.sub('00000' .. time[2], -6)
  local last = meta and string.match(meta, '^%d+')
  if last and tonumber(last) >= tonumber(fence) then
    fence = whole(last + 1)
  end
  redis.call('SET', META, fence .. ARGV[3], 'PX', whole(ARGV[2] + META_MARGIN))
  if claims then
    if next_waiter then
      redis.call('HDEL', ALIVE, token, WHO .. token)
    else
      redis.call('DEL', ALIVE)
    end
  end
  if INDEX then
    redis.call('ZADD', INDEX, whole(math.floor(fence / 1000) + ARGV[2]), NAME)
    -- What nobody released is forgotten, by one in a hundred; who lacks the right for it goes on.
    if time[2] % 100 == 0 then
      redis.pcall('ZREMRANGEBYSCORE', INDEX, '-inf', whole(time[1] * 1000 - META_MARGIN))
    end
  end
  redis.call('SET', NAME, token, 'PX', ARGV[2])
  return {'OK', fence}
end

--- prelude
--- following
local ENDLESS = 86400000 -- how long the index remembers a lock that never expires, since it was last met: a day
local lease, slice = tonumber(ARGV[2]), tonumber(ARGV[4])
local is_gone = redis.call('EXISTS', TOMBSTONE) == 1
meta = redis.call('GET', META)
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
  local left = redis.call('PTTL', NAME)
  local how = baton_for(value) and 'baton' or owner == value and 'ours' or 'foreign'
  if how == 'ours' and group_at(value) then
    how, slice = 'group', math.min(slice, GROUP_SLICE)
  end
  if slice > 0 then
    queue_up(token, left, slice, string.sub(ARGV[3], string.find(ARGV[3], ' ', 2, true) + #token + 2))
  elseif not is_gone then
    leave_queue(token)
    if slice == 0 then
      -- Given up here and now: a copy of a request that is still on the wire must not take the lock.
      redis.call('SET', TOMBSTONE, 'left', 'PX', MEMORY)
    end
  end
  if INDEX and how == 'foreign' then
    redis.call('ZADD', INDEX, now_ms() + (left < 0 and ENDLESS or left), NAME)
  end
  local is_known = owner == value or owner == HOSTED .. value
  local held = how == 'ours' and math.max(now_us() - fence, 0) / 1000 or nil
  return {'BUSY', left, how, is_known and holder or nil, held}
end

if value == token then
  -- Mine already: the reply to an earlier copy of this request was lost. The lease starts anew,
  -- but is not cut: this copy may be a late one, of a lock that was extended since.
  lease = math.max(lease, redis.call('PTTL', NAME))
end
local keep = lease + META_MARGIN
if owner ~= token or not value then
  note_lost(meta, owner)
  fence = math.max(now_us(), (fence or 0) + 1)
  redis.call('SET', META, whole(fence) .. ARGV[3], 'PX', keep)
else
  grow(META, keep)
end
-- The mailbox stays: this copy may be a late one, and the caller about to listen there.
wake_sleeper(token)
leave_queue(token)
if redis.call('EXISTS', WAITERS) == 0 then
  redis.call('DEL', ALIVE)
end
wake_if_later(lease)
if INDEX then
  redis.call('ZADD', INDEX, now_ms() + lease, NAME)
end
-- The lock itself comes last: an error above (a key of another type, a command denied) leaves none behind.
if value == token then
  redis.call('PEXPIRE', NAME, lease)
elseif claims then
  -- The baton gives way.
  redis.call('SET', NAME, token, 'PX', lease)
else
  redis.call('SET', NAME, token, 'NX', 'PX', lease)
end
return {'OK', whole(fence)}
