-- Put after the prelude where several hold a lock together. What stands at the name then is 'readers:NUMBER' or
-- 'permits:NUMBER', and beside it, META, as ever. SHARES: by the ends of their leases in ms, the tokens of
-- those who hold it, and 'baton:TOKEN' of those it was left to. HOLDERS: 'FENCE RECORD' by token. [8 index]

-- What stands at the name, and the kind of group if it is one, those dropped whose time is over.
local function standing(value)
  local group = group_at(value)
  if not group then
    return value
  end
  for _, token in ipairs(redis.call('ZRANGEBYSCORE', SHARES, '-inf', whole(now_ms()))) do
    redis.call('ZREM', SHARES, token)
    redis.call('HDEL', HOLDERS, token)
    remember_loss(token)
  end
  if redis.call('EXISTS', SHARES) == 0 then
    redis.call('DEL', NAME, HOLDERS)
    return false
  end
  return value, group
end

-- Throw away what is left of a group whose time is over, before another begins.
local function drop_shares()
  for _, token in ipairs(redis.call('ZRANGE', SHARES, 0, -1)) do
    remember_loss(token)
  end
  redis.call('DEL', SHARES, HOLDERS)
end

-- Whether a group of that kind has room for one of those who would join it.
local function has_room(group, kind, limit)
  return group == kind and (not limit or redis.call('ZCARD', SHARES) < limit)
end

local function leave_share_to(token)
  redis.call('ZREM', WAITERS, token)
  redis.call('ZADD', SHARES, whole(now_ms() + CLAIM), BATON .. token)
  wake(token)
end

-- Leave shares to those at the head of the queue who may join the group; gives one of them, or false.
local function admit(group)
  local given = false
  while true do
    local head = first_waiter()
    if not head or not has_room(group, group_of(head)) then
      return given
    end
    leave_share_to(head)
    given = head
  end
end

-- Have the first who would join the group ask again soon: it finds out if those before it are dead.
local function rouse(group)
  for _, token in ipairs(redis.call('ZRANGE', WAITERS, 0, -1)) do
    local alive, _, again = read_waiter(token)
    if group_of(token) == group and alive and alive >= now_ms() then
      if again > now_ms() + GROUP_SLICE then
        wake(token)
      end
      return
    end
  end
end

-- One whom it, or a share of it, was left to: for a caller that was perhaps told so in vain.
local function left_to(value)
  for _, share in ipairs(group_at(value) and redis.call('ZRANGE', SHARES, 0, -1) or {}) do
    if baton_for(share) then
      return baton_for(share)
    end
  end
  return baton_for(value) or false
end

local function record_of_one()
  local tokens = redis.call('ZRANGE', SHARES, 0, -1)
  for number = #tokens, 1, -1 do
    local found = redis.call('HGET', HOLDERS, tokens[number])
    if found then
      return string.match(found, '^%d+ (.*)$')
    end
  end
  return ''
end

-- Have the name be taken until the last share is over. fence: the largest that was given.
local function settle(value, fence, record)
  local ends = tonumber(redis.call('ZRANGE', SHARES, -1, -1, 'WITHSCORES')[2])
  local left, was = ends - now_ms(), redis.call('PTTL', NAME)
  redis.call('SET', META, table.concat({whole(fence), #value, value, record or record_of_one()}, ' '),
    'PX', whole(math.max(left + META_MARGIN, redis.call('PTTL', META))))
  grow(SHARES, left + META_MARGIN)
  grow(HOLDERS, left + META_MARGIN)
  redis.call('PEXPIREAT', NAME, whole(ends))
  if INDEX then
    redis.call('ZADD', INDEX, whole(ends), NAME)
  end
  if left < was then
    wake_if_later(left)
  end
end

local function last_fence()
  return (read_meta(token_at(META) or '')) or now_us()
end

-- Go on without those who have just left the group; gives a waiter that something was left to, or false.
local function go_on(was)
  local value, group = standing(was)
  if not value then
    local head = hand_on()
    if was then
      let_go(was)
    end
    if INDEX and not head then
      redis.call('ZREM', INDEX, NAME)
    end
    return head
  end
  local given = admit(group)
  settle(value, last_fence())
  return given
end
