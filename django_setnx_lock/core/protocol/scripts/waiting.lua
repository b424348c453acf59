-- Put where a script looks at a lock: who waits for it by name, and what those who hold it wait for themselves.
-- No more are named than 'most'.
local named = {}

-- Until when one that waits is alive, in ms, and when it came, in us.
local function read_times(alive_key, token)
  local alive, came = string.match(ask('HGET', alive_key, token) or '', '^(%d+) (%d+)')
  return tonumber(alive), came and tonumber(came) < FENCES and came
end

local function is_alive(token)
  local alive = read_times(ALIVE, token)
  return alive and alive >= now_ms()
end

-- Those it was left to come first: they have left the queue.
local function name_waiter(token)
  if #named < most then
    local alive, came = read_times(ALIVE, token)
    if alive and alive >= now_ms() then
      table.insert(named, {token, came, ask('HGET', ALIVE, WHO .. token)})
    end
  end
end

-- However long the queue is, no more of it is read than that takes.
local function name_queued()
  local at, some = 0, 100
  while #named < most and some == 100 do
    local tokens = ask('ZRANGE', WAITERS, at, at + 99) or {}
    for _, token in ipairs(tokens) do
      name_waiter(token)
    end
    at, some = at + 100, #tokens
  end
end

-- What who holds the lock by that token waits for, as the search for deadlocks has it told; else false. It may be a
-- lock that the caller has no right to look at.
local function awaited_by(holder)
  local is_known, token, name = pcall(read_wait, NAME, holder)
  if is_known and token then
    local _, came = read_times(key_beside(name, 'alive'), token)
    return {name, token, came or false}
  end
  return false
end
