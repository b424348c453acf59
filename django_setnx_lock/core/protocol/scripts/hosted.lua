-- The value at the name is the token, as of a lock with a queue, and expires with the lease. Beside it, in meta, the
-- token is marked as that of one who will wake nobody: 'FENCE LENGTH-OF-TOKEN hosted:TOKEN RECORD'.
local function read_known(meta)
  local fence, token, record = read_meta(meta)
  if token and string.sub(token, 1, #HOSTED) == HOSTED then
    token = string.sub(token, #HOSTED + 1)
  end
  return {fence = fence, token = token, record = record}
end

-- What is beside the lock, which is its holder's without that, too.
local function known_beside()
  return read_known(text(redis.pcall('GET', KEYS[2])))
end

-- Whether the value is the one that was written with what is known.
local function stands(value, known)
  return known.token == value
end

-- How long the lock is taken yet, in ms, -1 without end; false when it is free.
local function time_left(value)
  return value and redis.call('PTTL', KEYS[1])
end

local function is_mine(value, _, token)
  return value == token
end

-- Have the lock be that token's until then.
local function write(token, fence, ends, record)
  local lease = ends - now_ms()
  redis.call('SET', KEYS[2], table.concat({whole(fence), #HOSTED + #token, HOSTED .. token, record}, ' '),
    'PX', whole(lease + META_MARGIN))
  redis.call('SET', KEYS[1], token, 'PX', whole(lease))
end

local function remove()
  redis.call('DEL', KEYS[1])
end
