-- What the holder of a lock says while it looks for a deadlock: '{N}:waits:TOKEN' is 'QUEUED LENGTH NAME RECORD', its token in the
-- queue of the lock that it waits for, and that name, which has that length. It is believed only where that token queues.
local function ask(...)
  local reply = redis.pcall(...)
  return not (type(reply) == 'table' and reply.err) and reply -- not what others wrote in the place of ours
end

local function beside(name, what)
  local tag = string.match(name, '^[^{]*{([^}]+)}')
  return (tag and '{' .. tag .. '}:' .. name or '{' .. name .. '}') .. ':' .. what
end

-- Its rank, if that token waits for the lock.
local function is_queued(name, queued)
  local alive, _, _, _, rank = parse_waiter(ask('HGET', beside(name, 'waiting'), queued))
  return alive and alive >= now and ask('ZSCORE', beside(name, 'waiters'), queued) and rank
end

local function read_wait(name, token)
  local queued, length, rest = string.match(ask('GET', beside(name, 'waits:' .. token)) or '', '^(%S+) (%d+) (.*)$')
  if rest then
    return queued, string.sub(rest, 1, length), string.sub(rest, length + 2)
  end
end
