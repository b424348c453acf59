-- Some of the names in the index, in the order of their leases. Writes nothing, and what it takes does not grow
-- with the index.
-- KEYS  1 index
-- ARGV  1 of how many names at most all are listed  2 the first to list otherwise, from 0  3 how many
--       4 '-' for the last to end first, else ''
-- Reply {how many there are, of how many the lease runs, 'all' or false, names}
-- Those whose lease is over come behind all others, the latest first.
--- clock
local index, most, start, count = KEYS[1], ARGV[1] + 0, ARGV[2] + 0, ARGV[3] + 0
local total = redis.call('ZCARD', index)
local now = math.floor(now_us() / 1000)

-- The rank of the first whose lease runs. (ZCOUNT would be one more command to have the right for.)
local first, beyond = 0, total
while first < beyond do
  local middle = math.floor((first + beyond) / 2)
  if redis.call('ZRANGE', index, middle, middle, 'WITHSCORES')[2] + 0 > now then
    beyond = middle
  else
    first = middle + 1
  end
end

local names = {}
local function add(from, to)
  if from <= to then
    for _, name in ipairs(redis.call('ZRANGE', index, from, to)) do
      names[#names + 1] = name
    end
  end
end
local function add_reversed(from, to)
  if from <= to then
    local found = redis.call('ZRANGE', index, from, to)
    for number = #found, 1, -1 do
      names[#names + 1] = found[number]
    end
  end
end

if total <= most then
  start, count = 0, total
end
local stop, running = math.min(start + count, total), total - first
if ARGV[4] == '-' then
  add_reversed(total - stop, total - start - 1)
else
  add(first + start, first + math.min(stop, running) - 1)
  add_reversed(total - stop, math.min(first, total - start) - 1)
end
return {total, running, total <= most and 'all', names}
