-- Put before every script. Time is the server's; leases are in milliseconds.
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local now_ms = math.floor(now_us / 1000)

-- Lives of companion keys only ever grow: a short lease must not cut what a longer one needs.
local function grow(key, ms)
  if redis.call('PTTL', key) < ms then
    redis.call('PEXPIRE', key, ms)
  end
end

-- What stands at the name, false when nothing does; something that is no string is nobody's token.
local function token_at(name)
  local value = redis.pcall('GET', name)
  if type(value) == 'table' then
    return false
  end
  return value
end
