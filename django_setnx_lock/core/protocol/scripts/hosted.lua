-- For servers where a script may touch none but its KEYS: what is there in the place of functions of lib. No mailbox is touched,
-- so nobody is woken: who waits asks again soon.
LATE = 1000
local function slice_of(ms)
  return math.min(ms, 100)
end

local function mark_awake()
end

-- One that sleeps at its mailbox, and asks only later.
local function is_passed_over(_, again)
  return again > now + CLAIM
end

local function wake()
end

local function awaited()
  return false -- nobody says so
end
