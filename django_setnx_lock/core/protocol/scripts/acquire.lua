-- Take the lock, or queue for it. Sent twice, it is taken once.
-- KEYS  1 name  2 meta  [3 index]
-- ARGV  1 token, without white space: '...', 'read:...', 'permit:LIMIT:...'  2 lease  3 holder record (JSON)
--       4 within how many ms the caller asks again (0: it does not wait)  5 its mailbox
-- Reply fence, a number, below 0 if the lock is listed  {'OK', fence, 'listed', waiters woken by this}  {'BUSY', ms left, record of who holds it, or false,
--       waiters that it was given to by this, or false}  {'GONE'} the token is done with
--- head

-- Nobody has it, and nobody waits: most are.
time = not string.find(token, ':', 1, true) and redis.call('TIME') -- without that right no lock is left
if time and redis.call('SET', NAME, token, 'NX', 'PX', ARGV[2]) then
  if redis.call('EXISTS', BESIDE .. 'waiting', BESIDE .. 'gone') == 0 then
    local fence, rest = time[1] .. string.sub('00000' .. time[2], -6), ' ' .. token .. ' ' .. ARGV[3]
    local keep = string.format('%d', ARGV[2] + 60000)
    local last = redis.pcall('SET', META, fence .. rest, 'PX', keep, 'GET')
    if type(last) == 'table' then
      redis.call('DEL', NAME)
      return last -- somebody's data in its place
    end
    last = last and string.match(last, '^%d+')
    if last and #last <= 16 and tonumber(last) >= tonumber(fence) then
      -- The server's clock was stepped back.
      fence = string.format('%d', last + 1)
      redis.call('SET', META, fence .. rest, 'PX', keep)
    end
    return tonumber(fence)
  end
  redis.call('DEL', NAME)
end

--- lib
local lease, slice = tonumber(ARGV[2]), slice_of(ARGV[4])
if is_gone(token) then
  return {'GONE'}
end
local value, group = standing()
if value == true then
  list(now + 60 * MEMORY)
  return is_wrong()
end
local given = false
if not value or group then
  -- What ran out goes to those who wait, in order.
  given = admit(value, group) or false
  value, group = standing()
end
local fence = fence_of(value, group, token)
if fence then
  -- It was given to this caller while it waited, or an answer was lost. What it has is never cut, but for the claim.
  local _, was_given = leave_queue(token)
  keep(value, group, token, was_given and lease or math.max(lease, lease_left(group, token)))
elseif has_room(value, group, token) and not first_waiter() then
  fence = grant(token, lease, ARGV[3], value, group)
  leave_queue(token)
end
if fence then
  local given, roused = given ~= token and given, rouse(lease)
  given = given and roused and given .. ' ' .. roused or given or roused
  return given and {'OK', whole(fence), 'listed', given} or -fence
end
local left = lease_left()
if group == group_of(token) and group then
  left = math.min(left, redis.call('ZRANGE', SHARES, 0, 0, 'WITHSCORES')[2] - now)
end
if slice > 0 then
  if string.sub(value or '', 1, 5) == 'poll-' then
    left = math.min(left, 100) -- who has it wakes nobody
  end
  local _, _, _, _, rank = read_waiter(token)
  if not rank then
    local last = redis.call('ZRANGE', WAITERS, -1, -1, 'WITHSCORES')[2]
    rank = whole(math.max(now_us, (last or 0) + 1))
  end
  redis.call('ZADD', WAITERS, rank, token)
  local again = now + (left >= 0 and math.min(left, slice) or slice)
  redis.call('HSET', WAITING, token, table.concat({whole(again + LATE), whole(again), rank, #ARGV[5], ARGV[5], ARGV[3]}, ' '))
  mark_awake(ARGV[5])
  redis.call('PEXPIRE', WAITERS, slice + 4 * LATE)
  redis.call('PEXPIRE', WAITING, slice + 4 * LATE)
elseif leave_queue(token) then
  -- Those behind it may share the lock with who has it; or it alone was told how soon a lease ends.
  local others = group and admit(value, group) or left >= 0 and rouse(left)
  given = given and others and given .. ' ' .. others or given or others or false
end
-- Operators see it from now on, for an hour where it has no end.
list(now + (left >= 0 and left or 60 * MEMORY))
local _, owner, record = read_meta()
if group then
  _, record = fence_of(value, group, redis.call('ZRANGE', SHARES, -1, -1)[1]) -- of one who has it still
end
return {'BUSY', math.ceil(left), owner == value and record or false, given}
