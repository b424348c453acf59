-- Say of a caller which holds locks that it waits for one more, and see whether it waits for itself by way of others.
-- All is read at one moment; a caller that is refused waits no longer for whoever looks after it.
-- KEYS  1 the lock waited for  2... the locks that the caller holds
-- ARGV  1 its token in the queue  2 for how many ms to believe it  3 its holder record
--       4... the tokens by which it holds them, in the order of KEYS
-- Reply {'OK'}  {'DEADLOCK', record, name, record, name, ...}  the caller waits for the first name, whose holder, of
--       the second record, waits for the second name, and so on; the caller holds the last
--- clock
--- asking
--- grouping
--- nesting
local name, token, life, record = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
if not is_queued(name, token) then
  return {'OK'}
end
local said = table.concat({#token, #name, token, name, record}, ' ')
for number = 2, #KEYS do
  redis.call('SET', key_beside(KEYS[number], 'waits:' .. ARGV[number + 2]), said, 'PX', life)
end

-- Of how many shares one who waits at that token's place can do with none to become free: it cannot go on while so
-- many of them stay. One who stands before it and cannot go on keeps it waiting, too.
local function enough_of(queued, group)
  local kind, limit = group_of(queued)
  return kind == group and (limit or math.huge) or 1
end

-- The tokens that hold the lock, and how many of these have to stay for that waiter to stay.
local function in_the_way(lock, waiter)
  local value = ask('GET', lock) or ''
  local group = group_at(value)
  if not group then
    return {value}, 1
  end
  local shares = ask('ZRANGEBYSCORE', key_beside(lock, 'shares'), '(' .. whole(now), '+inf', 'LIMIT', 0, MOST)
  local enough = enough_of(waiter, group)
  if enough > 1 then
    for _, before in ipairs(redis.call('ZRANGE', key_beside(lock, 'waiters'), 0, 9)) do
      if before == waiter then
        break
      end
      if is_queued(lock, before) then
        enough = math.min(enough, enough_of(before, group))
      end
    end
  end
  return shares or {}, enough
end

-- All that wait for each other from the caller on, the nearest first.
local waiters, known = {{token = token, name = name, record = record, stays = true}}, {}
known[token] = waiters[1]
local at = 1
while waiters[at] and at <= MOST do
  local waiter = waiters[at]
  local tokens, enough = in_the_way(waiter.name, waiter.token)
  waiter.behind, waiter.enough = {}, enough
  for _, holder in ipairs(tokens) do
    local queued, waits_for, holder_record = read_wait(waiter.name, holder)
    -- One that waits for what it holds itself may be helped by another thread.
    if queued and queued ~= waiter.token then
      if not known[queued] then
        known[queued] = {token = queued, name = waits_for, record = holder_record, stays = true}
        waiters[#waiters + 1] = known[queued]
      end
      table.insert(waiter.behind, known[queued])
    end
  end
  at = at + 1
end

-- One stays if enough of those before it do. Whoever does not is taken out, until none is left or all who are stay.
local has_changed = true
while has_changed do
  has_changed = false
  for _, waiter in ipairs(waiters) do
    local staying = 0
    for _, other in ipairs(waiter.behind or {}) do
      staying = staying + (other.stays and 1 or 0)
    end
    if waiter.stays and (not waiter.behind or staying < waiter.enough) then
      waiter.stays, has_changed = false, true
    end
  end
end

-- The last on the shortest way from the caller to itself. There is none for one that is in nobody's way, though it
-- waits behind others that stay.
local function last_before(caller)
  local reached, number = {caller}, 1
  while reached[number] do
    for _, other in ipairs(reached[number].behind) do
      if other == caller then
        return reached[number]
      end
      if other.stays and not other.after then
        other.after = reached[number]
        reached[#reached + 1] = other
      end
    end
    number = number + 1
  end
end

local last = waiters[1].stays and last_before(waiters[1])
if not last then
  return {'OK'}
end
for number = 2, #KEYS do
  redis.call('DEL', key_beside(KEYS[number], 'waits:' .. ARGV[number + 2]))
end
local reply = {}
while last do
  table.insert(reply, 1, last.name)
  table.insert(reply, 1, last.record)
  last = last.after
end
table.insert(reply, 1, 'DEADLOCK')
return reply
