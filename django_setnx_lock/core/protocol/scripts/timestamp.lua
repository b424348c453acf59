-- For locks whose value is the time, in units of UNIT ms, at which they stop being valid: what is there in the place of functions
-- of lib. Whose it is stands in meta: 'FENCE TOKEN @END RECORD', END in ms; 0 when it was let go. Nobody queues.
local UNIT, VANISHES = 1, true
local EARLIEST, LATEST = 1e11, 1e14 -- what can be a time at all, in ms: so that no unit is taken for the other
local STAYS = 1000 -- how much longer than its lock is valid a value is kept

local function read_meta()
  local fence, token, rest = string.match(redis.call('GET', META) or '', '^(%d+) (%S+) (.*)$')
  local ends, record = string.match(rest or '', '^@(%d+) (.*)$')
  return fence and #fence <= 16 and tonumber(fence) or 0, ends and token, record, tonumber(ends)
end

-- Rounded up: others who read it wait until our own end at least.
local function value_for(ends)
  return whole(math.ceil(ends / UNIT))
end

-- What the text is as a time, in ms; nothing when it is none.
local function as_time(text, unit)
  local time = string.match(text, '^%d+%.?%d*$') and tonumber(text) * unit
  return time and time >= EARLIEST and time < LATEST and time
end

-- Whose lock it is, its value if it is another program's, and when it is over.
local function read_name()
  local value, _, token, _, ends = redis.pcall('GET', NAME), read_meta()
  if not value or type(value) == 'table' then
    return value and true
  elseif (ends or 0) > 0 and value == value_for(ends) then
    return token, ends
  end
  local time = as_time(value, UNIT)
  -- A whole unit has begun that is later: some hold on for as long as the time is equal to theirs.
  return time and value or true, time and math.floor(time / UNIT + 1) * UNIT
end

local function standing()
  local value, ends = read_name()
  return (not ends or ends > now) and value
end

local function lease_left()
  local _, ends = read_name()
  return ends - now_us / 1000
end

local function is_wrong()
  local value, other, names = redis.call('GET', NAME), 1001 - UNIT, {'ms', [1000] = 's'}
  -- Not the value itself: it may be the token of a lock of another kind.
  local what = #value .. ' bytes that are no time in ' .. names[UNIT]
  if as_time(value, other) then
    what = 'a time in ' .. names[other] .. ', and the unit of this lock is ' .. names[UNIT]
  end
  return redis.error_reply('WRONGTYPE its value is no timestamp of such a lock: ' .. what)
end

-- The value last: an error before it (a key of another type, a command denied) leaves no lock behind.
local function write(token, fence, record, ends)
  local known, value = table.concat({whole(fence), token, '@' .. whole(ends), record}, ' '), value_for(ends)
  redis.call('SET', META, known, 'PX', whole(ends - now + MEMORY))
  if VANISHES then
    redis.call('SET', NAME, value, 'PX', whole(value * UNIT + STAYS - now_us / 1000))
  else
    redis.call('SET', NAME, value)
  end
  list(ends)
end

local function keep(_, _, token, lease)
  -- First a write that is allowed, and allows the rest, on a server that is out of memory.
  redis.call('PEXPIRE', META, whole(lease + MEMORY))
  local fence, _, record, ends = read_meta()
  write(token, fence, record, math.max(ends, math.ceil(now_us / 1000 + lease)))
end

local function grant(token, lease, record)
  local fence = math.max(now_us, read_meta() + 1)
  write(token, fence, record, math.ceil(now_us / 1000 + lease))
  return fence
end

local function slice_of()
  return 0
end

local function first_waiter()
end

-- Of what is known, only fence and token stay: who writes the same time after that has it for itself.
local function drop(token)
  local value = standing()
  if value ~= token then
    return false, value
  end
  redis.call('DEL', NAME)
  local fence, last = read_meta()
  if last then
    redis.call('SET', META, whole(fence) .. ' ' .. last .. ' @0 ', 'PX', MEMORY)
  end
  return true, false
end
