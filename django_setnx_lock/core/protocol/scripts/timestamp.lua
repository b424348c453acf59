-- The value at the name is the time, in whole units, at which the lock stops being valid. Whose it is stands beside
-- it, in meta: 'FENCE LENGTH-OF-TOKEN TOKEN @END UNIT RECORD', END in ms.
local MS = {s = 1000, ms = 1}
local STAYS = 1000 -- how much longer than its lock is valid a value is kept, in ms
local EARLIEST, LATEST = 1e11, 1e14 -- what can be a time at all, in ms: so that no unit is taken for the other

-- Rounded up: others who read it wait until our own end at least.
local function value_for(ends, unit)
  return whole(math.ceil(ends / MS[unit]))
end

local function read_known(meta)
  local fence, token, rest = read_meta(meta)
  local ends, unit, record = string.match(rest or '', '^@(%d+) (m?s) (.*)$')
  return {fence = fence, token = token, ends = tonumber(ends), unit = unit, record = record}
end

-- What is beside the lock. An error where that is no string: the lock is neither ours then nor lost.
local function known_beside()
  return read_known(redis.call('GET', KEYS[2]))
end

-- Whether the value is the one that was written with what is known.
local function stands(value, known)
  return known.ends ~= nil and value == value_for(known.ends, known.unit)
end

-- What the value is as a time, in ms; nil when it is none.
local function as_time(value, unit)
  local number = string.match(value, '^%d+%.?%d*$') and tonumber(value)
  local time = number and number * MS[unit]
  return time and time >= EARLIEST and time < LATEST and time or nil
end

local function no_time(value, unit)
  local what = #value .. ' bytes that are no time in ' .. unit
  for other in pairs(MS) do
    if as_time(value, other) then
      what = 'a time in ' .. other .. ', and the unit of this lock is ' .. unit
    end
  end
  -- Not the value itself: it may be the token of a lock of another kind.
  return redis.error_reply('WRONGTYPE its value is no timestamp of such a lock: ' .. what)
end

-- How long the lock is taken yet, in ms; false when it is free, nil and an error when the value is no time.
-- That of another program is over when a whole unit has begun that is later: some hold on for as long
-- as the time is equal to theirs, by a clock that knows whole units only.
local function time_left(value, known, unit)
  local ends = value and known.ends
  if not value then
    return false
  elseif not stands(value, known) then
    ends = as_time(value, unit)
    if not ends then
      return nil, no_time(value, unit)
    end
    ends = math.floor(ends / MS[unit] + 1) * MS[unit]
  end
  local left = ends - now_us() / 1000
  return left > 0 and left
end

local function is_mine(value, known, token)
  return known.token == token and stands(value, known) and time_left(value, known) and true
end

-- Have the lock be that token's until then
-- and Redis remove the value a second later if it vanishes. The value
-- last: an error before it (a key of another type, a command denied) neither leaves a lock behind nor has one lost.
local function write(token, fence, ends, record, unit, vanishes)
  local keep = ends - now_ms() + META_MARGIN
  local known = table.concat({whole(fence), #token, token, '@' .. whole(ends), unit, record}, ' ')
  redis.call('SET', KEYS[2], known, 'PX', whole(keep))
  local value = value_for(ends, unit)
  if vanishes == '1' then
    redis.call('SET', KEYS[1], value, 'PX', whole(value * MS[unit] + STAYS - now_ms()))
  else
    redis.call('SET', KEYS[1], value)
  end
end

-- Remove the value. Of what is known, only fence and token stay: who writes the same time after that, in
-- whole units, has it for himself, and for as long as he means to.
local function remove(known)
  redis.call('DEL', KEYS[1])
  if known.ends then
    redis.call('SET', KEYS[2], table.concat({whole(known.fence), #known.token, known.token, ''}, ' '),
      'PX', META_MARGIN)
  end
end
