-- Take a lock together with others of one's kind.
-- ARGV  1 token: 'read:...', 'permit:LIMIT:...'  2 lease ms  3 holder record
--       4 ms until the caller asks again at the latest, as of acquire.lua
-- Reply {'OK', fence, waiter that something was left to as well, or false}
--       {'BUSY', ms left, how, record} and {'GONE'}, as of acquire.lua
-- Error WRONGTYPE when the name holds no string
--- shared_keys
--- prelude
--- shared
--- following
local token, lease, slice = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[4])
local kind, limit = group_of(token)
local value, group = standing(redis.call('GET', NAME))
-- What ran out was handed on by nobody.
local given = group and admit(group) or false
local held_until = group and redis.call('ZSCORE', SHARES, token)
local is_left = value == BATON .. token or group and redis.call('ZSCORE', SHARES, BATON .. token)
local is_gone = redis.call('EXISTS', TOMBSTONE) == 1
if is_gone and (slice > 0 or not value or held_until or is_left) then
  return {'GONE'}
end
if not value then
  local head = first_waiter()
  if head and head ~= token then
    give_baton(head)
    value = BATON .. head
  end
end
local meta = redis.call('GET', META)
local fence, owner, record = read_meta(meta)

-- Who queued has been admitted above, if he may be.
local may_join = not is_gone and has_room(group, kind, limit) and not first_waiter()
if value and not held_until and not is_left and not may_join then
  local left = redis.call('PTTL', NAME)
  local how = baton_for(value) and 'baton' or owner == value and 'ours' or 'foreign'
  if group then
    how, slice = 'group', math.min(slice, GROUP_SLICE)
    if group == kind then
      -- It has no room, or somebody waits who was there before.
      left = math.min(left, redis.call('ZRANGE', SHARES, 0, 0, 'WITHSCORES')[2] - now_ms())
    end
  end
  if given then
    settle(value, fence or now_us())
  end
  if slice > 0 then
    queue_up(token, left, slice, ARGV[3])
  elseif not is_gone then
    leave_queue(token)
    if slice == 0 then
      redis.call('SET', TOMBSTONE, 'left', 'PX', MEMORY)
    end
    if group then
      rouse(group)
    end
  end
  if INDEX and how == 'foreign' then
    redis.call('ZADD', INDEX, now_ms() + (left < 0 and ENDLESS or left), NAME)
  end
  local is_known = owner == value or owner == HOSTED .. value
  local held = how == 'ours' and math.max(now_us() - fence, 0) / 1000 or nil
  return {'BUSY', left, how, is_known and record or nil, held}
end

local ends, own, known = now_ms() + lease, nil, nil
if held_until then
  -- Mine already: the reply to an earlier copy of this request was lost.
  ends = math.max(ends, held_until)
  known = redis.call('HGET', HOLDERS, token)
  own = string.match(known or '', '^%d+')
end
own = own and tonumber(own) or math.max(now_us(), (fence or 0) + 1)
-- The mailbox stays: this copy may be a late one, and the caller about to listen there.
wake_sleeper(token)
leave_queue(token)
local is_first = not group
if is_first then
  value, group = kind .. whole(own), kind
  note_lost(meta, owner)
  drop_shares()
end
redis.call('ZREM', SHARES, BATON .. token)
redis.call('HSET', HOLDERS, token, known or whole(own) .. ' ' .. ARGV[3])
redis.call('ZADD', SHARES, whole(ends), token)
if redis.call('GET', NAME) ~= value then
  redis.call('SET', NAME, value, 'PX', whole(lease))
end
given = admit(group) or given
wake_if_later(lease)
if is_first then
  rouse(group)
end
settle(value, math.max(own, fence or 0), ARGV[3])
return {'OK', whole(own), given or held_until and left_to(value)}
