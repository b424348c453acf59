-- Put first where a script says so: in all of a lock without a queue, where nobody is woken and the holder counts as
-- foreign for all who wait. Its end is hosted.lua or timestamp.lua: what stands at the name and beside it.
-- KEYS  1 name of the lock  2 its meta  3 tombstone of the token in question  [4 index of all that are held]
-- Each is written as one of KEYS where it is used: there are servers that let a script touch no other key, and some
-- that look for that in its text. Times are the server's.
--- clock
-- Rounded up: a lease that is counted from here is not shorter than asked for.
local function now_ms()
  return math.ceil(now_us() / 1000)
end

-- What pcall('GET', ...) found; nil when nothing stands there, or something that is no string.
local function text(value)
  return type(value) == 'string' and value or nil
end

-- List the lock until then. Before it is taken: an error leaves no lock behind.
local function list(ends)
  if KEYS[4] then
    redis.call('ZADD', KEYS[4], whole(ends), KEYS[1])
  end
end

local function unlist()
  if KEYS[4] then
    redis.call('ZREM', KEYS[4], KEYS[1])
  end
end

--- reading
--- KIND
