-- See whether those whom something was left to have taken it up, or else pass it on.
-- ARGV  1 the waiter that was looked after  2 '1' if nobody will look again: the process is about to end
-- Reply {'OK', waiter to look after next, or false, 1 if something was left to somebody just now}
--- shared_keys
--- prelude
--- shared
local value, group = standing(token_at(NAME))

-- Those who wait and were not left anything, the first to come first; at most so many as there are.
local function others()
  local found = {}
  for _, token in ipairs(redis.call('ZRANGE', WAITERS, 0, -1)) do
    local alive = read_waiter(token)
    if alive and alive >= now_ms() then
      table.insert(found, token)
    end
  end
  return found
end

-- Back into the queue, for as long as what was left to it would have waited.
local function put_back(token, alive, rank, again)
  redis.call('ZADD', WAITERS, rank, token)
  redis.call('HSET', ALIVE, token, string.format('%d %d %d', math.min(alive, now_ms() + CLAIM), rank, again))
end

-- From those who did not fetch what woke them, who are dead or asking just now, to those behind them.
local function pass_on()
  local waiting, outstanding, unfetched = others(), false, {}
  for _, share in ipairs(redis.call('ZRANGE', SHARES, 0, -1)) do
    local token = baton_for(share)
    if token then
      outstanding = token
      local _, rank = read_waiter(token)
      if rank and has_mail(token) then
        table.insert(unfetched, token)
      end
    end
  end
  if #waiting == 0 or #unfetched == 0 then
    return outstanding, 0
  end
  for _, token in ipairs(unfetched) do
    redis.call('ZREM', SHARES, BATON .. token)
    put_back(token, read_waiter(token))
  end
  if redis.call('EXISTS', SHARES) == 0 then
    redis.call('DEL', NAME, HOLDERS)
    give_baton(waiting[1])
    return waiting[1], 1
  end
  local given = false
  for _, token in ipairs(waiting) do
    if not has_room(group, group_of(token)) then
      break
    end
    leave_share_to(token)
    given = token
  end
  settle(value, last_fence())
  return given or outstanding, given and 1 or 0
end

local owner, passed = false, 0
if not value then
  owner = hand_on()
  passed = owner and 1 or 0
elseif group then
  -- What ran out is free again.
  owner = admit(group)
  if owner then
    passed = 1
    settle(value, last_fence())
  else
    owner, passed = pass_on()
  end
else
  owner = baton_for(value) or false
  if owner and has_mail(owner) then
    local next_one = others()[1]
    local alive, rank, again = read_waiter(owner)
    if next_one and rank then
      -- Before the other leaves: a queue that is made anew would have no end of life.
      put_back(owner, alive, rank, again)
      give_baton(next_one)
      owner, passed = next_one, 1
    end
  elseif not owner then
    local _, known = read_meta(token_at(META) or '')
    if known ~= value then
      -- A foreign client got in between: the next waiter was told of another's lease.
      wake_if_later(-1)
    end
  end
end
if owner and ARGV[2] == '1' then
  -- The next waiter looks instead, when the claim is over.
  wake_if_later(CLAIM)
end
return {'OK', owner, passed}
