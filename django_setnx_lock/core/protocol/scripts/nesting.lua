-- Put where a script looks at callers that hold locks and wait for others. Of each lock that such a caller holds,
-- '{N}:waits:TOKEN' says so for a short while, by the token it is held by: 'LENGTH-OF-TOKEN LENGTH-OF-NAME TOKEN NAME
-- RECORD', with the token in the queue, the name waited for and the holder record. It is believed only where that
-- token does queue there.
local now = math.floor(now_us() / 1000)
local MOST = 200 -- of so many callers, or holders of one lock, a search goes no further

-- The key of that kind beside the lock of that name, as of keys.py.
local function key_beside(name, what)
  local tag = string.match(name, '^[^{]*{([^}]+)}')
  return (tag and '{' .. tag .. '}:' .. name or '{' .. name .. '}') .. ':' .. what
end

-- Whether that token waits for the lock, and whoever sent it lives.
local function is_queued(name, token)
  local alive = string.match(ask('HGET', key_beside(name, 'alive'), token) or '', '^%d+')
  return alive and tonumber(alive) >= now and ask('ZSCORE', key_beside(name, 'waiters'), token)
end

-- The token by which who holds that lock by that token waits for another one, the name of that, and the record.
local function read_wait(name, holder)
  local found = ask('GET', key_beside(name, 'waits:' .. holder)) or ''
  local head, first, second = string.match(found, '^((%d+) (%d+) )')
  if head then
    local at = #head + first + 2
    local token, waits_for = string.sub(found, #head + 1, at - 2), string.sub(found, at, at + second - 1)
    if is_queued(waits_for, token) then
      return token, waits_for, string.sub(found, at + second + 1)
    end
  end
end

