-- See whether the waiter that the baton was made out to has taken it up, or else pass it on.
-- ARGV  1 token of that waiter  2 '1' if nobody will look again: the process is about to end
-- Reply {'OK', waiter to look after next, or false, 1 if that one was handed the lock just now}
--- keys
--- prelude
-- Pass the baton on from one that did not fetch it: it is dead, or asking just now. The next one
-- after it has its turn; it keeps its place, for as long as the baton would have waited.
local function pass_on(head)
  local alive, rank, again = read_waiter(head)
  if not rank then
    return head
  end
  for _, token in ipairs(redis.call('ZRANGEBYSCORE', WAITERS, '(' .. whole(rank), '+inf')) do
    local until_ms = read_waiter(token)
    if until_ms and until_ms >= now_ms() then
      -- Before the other leaves: a queue that is made anew would have no end of life.
      redis.call('ZADD', WAITERS, rank, head)
      give_baton(token)
      redis.call('HSET', ALIVE, head,
        string.format('%d %d %d', math.min(alive, now_ms() + CLAIM), rank, again))
      return token
    end
  end
  return head
end

local head = ARGV[1]
local value = token_at(NAME)
local was = baton_for(value)
local owner = was
if not value then
  owner = hand_on()
elseif not owner then
  local _, known = read_meta(redis.call('GET', META))
  if known ~= value then
    -- A foreign client got in between: the next waiter was told of another's lease.
    wake_if_later(-1)
  end
  return {'OK', false}
elseif owner == head and has_mail(head) then
  owner = pass_on(head)
end
if owner and ARGV[2] == '1' then
  -- The next waiter looks instead, when the claim is over.
  wake_if_later(redis.call('PTTL', NAME))
end
return {'OK', owner, owner ~= was and 1 or 0}
