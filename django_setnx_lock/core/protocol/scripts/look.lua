-- Have the waiters whom the lock was given to, or who were roused, fetched their mail? Who has not is dead, or asking just
-- now: it keeps its place, and the first without unread mail has its turn before it. Until who has it has asked, the next
-- one is roused: should nobody ask, it does, when the claim is over.
-- ARGV  1 their tokens, in the order of the queue
-- Reply who is to be looked at next, or false
--- lib
local missed, is_awaited = {}, false
for token in string.gmatch(ARGV[1], '%S+') do
  local _, _, box, _, rank = read_waiter(token)
  local was_given = rank and not redis.call('ZSCORE', WAITERS, token)
  local has_mail = rank and redis.call('LPOS', box, token)
  if has_mail and not (was_given and redis.call('EXISTS', box .. ':awake') == 1) then
    table.insert(missed, token)
  elseif was_given then
    is_awaited = true
  end
end
if not (missed[1] or is_awaited) or not first_waiter(true) then
  return false -- they have asked; or nobody else is awake, and they may come yet
end
for _, token in ipairs(missed) do
  drop(token)
  queue_again(token)
end
local value, group = standing()
local given = missed[1] and (not value or group) and admit(value, group, true)
return given or rouse(CLAIM, true) or false
