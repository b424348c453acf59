-- Say of a caller which holds locks that it waits for one more, and see whether it waits for itself by way of others. All is
-- read at one moment. Who looks after a caller that is refused does not find the same: one is refused, not two.
-- KEYS  1 name and 2 meta of the lock waited for  3... the names of the locks that the caller holds
-- ARGV  1 its token in the queue  2 for how many ms to believe it  3 its holder record  4... the tokens by which it holds them
-- Reply {record, name, record, name, ...}: the caller waits for the first name, whose holder, of the second record, waits for
--       the second name, and so on; the caller holds the last. Empty if it is no deadlock
--- lib
--- waits
local MOST = 200 -- of so many callers, or holders of one lock, a search goes no further

-- The tokens by which the lock is held, and how many of these have to stay for that waiter to stay: of permits all, as one
-- that becomes free is enough. One that stands before it and cannot go on keeps it waiting, too.
local function in_the_way(waiter)
  local value, queue, enough = ask('GET', waiter.name) or '', beside(waiter.name, 'waiters'), math.huge
  local kind = string.match(value, '^(%l+):%d+$')
  if kind ~= 'readers' and kind ~= 'permits' then
    return {value}, 1
  end
  for _, queued in ipairs(ask('ZRANGE', queue, 0, math.min(ask('ZRANK', queue, waiter.token) or 0, MOST)) or {}) do
    local group, limit = group_of(queued)
    enough = is_queued(waiter.name, queued) and math.min(enough, group == kind and limit or 1) or enough
  end
  return ask('ZRANGEBYSCORE', beside(waiter.name, 'shares'), '(' .. whole(now), '+inf', 'LIMIT', 0, MOST) or {}, enough
end

local own = {token = token, name = NAME, record = ARGV[3]}
local known = {[token] = own}

-- Who holds what that waiter waits for, and waits itself. One that waits for what it holds may be helped by another thread.
local function behind(waiter)
  local holders, found = {}, {}
  holders, waiter.enough = in_the_way(waiter)
  for _, holder in ipairs(holders) do
    local queued, name, record = read_wait(waiter.name, holder)
    if queued and queued ~= waiter.token and is_queued(name, queued) then
      known[queued] = known[queued] or {token = queued, name = name, record = record}
      table.insert(found, known[queued])
    end
  end
  return found
end

-- All that the caller waits for by way of others, the nearest first, but those who go on; and the last before itself again.
local function search()
  local reached, seen, last = {own}, {[own] = true}, nil
  for number, waiter in ipairs(reached) do
    waiter.behind = waiter.behind or number <= MOST and behind(waiter) or {}
    for _, other in ipairs(waiter.behind) do
      last = last or other == own and waiter
      if not seen[other] and not other.goes_on then
        seen[other], other.after = true, waiter
        table.insert(reached, other)
      end
    end
  end
  return reached, last
end

for at = 3, is_queued(NAME, token) and #KEYS or 0 do
  local link = table.concat({token, #NAME, NAME, ARGV[3]}, ' ')
  redis.call('SET', beside(KEYS[at], 'waits:' .. ARGV[at + 1]), link, 'PX', ARGV[2])
end
-- One goes on if not enough of those before it stay. Who does is taken out, until all who are left stay.
local waiters, last, has_changed
repeat
  waiters, last, has_changed = search()
  for _, waiter in ipairs(waiters) do
    local staying = 0
    for _, other in ipairs(waiter.behind) do
      staying = staying + (other.goes_on and 0 or 1)
    end
    if not waiter.goes_on and staying < (waiter.enough or 1) then
      waiter.goes_on, has_changed = true, true
    end
  end
until not has_changed
last = is_queued(NAME, token) and not own.goes_on and last
for at = 3, last and #KEYS or 0 do
  redis.call('DEL', beside(KEYS[at], 'waits:' .. ARGV[at + 1]))
end
local reply = {}
while last do
  table.insert(reply, 1, last.name)
  table.insert(reply, 1, last.record)
  last = last.after
end
return reply
