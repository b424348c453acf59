-- Let the lock go if it is still mine, to the first who waits. Sending it twice is as good as once.
-- ARGV  1 token  2 'once' where no copy of a request of this token can be under way, 'again' where only one of this
--       can be, else ''  [3 ms for which its name is to be taken, from when it was granted  4 its fence]
-- Reply {'OK', waiter that it was handed to, or false}
--       {'LOST', how it was lost (JSON) or false, waiter that it is handed to, or false}
--- keys

-- Held, and nobody waits: most are.
local is_mine = redis.pcall('GET', NAME) == ARGV[1]
if is_mine and not ARGV[3] and redis.call('EXISTS', WAITERS) == 0 then
  redis.call('DEL', NAME)
  let_go(ARGV[1])
  if ARGV[2] ~= 'once' then
    redis.call('SET', TOMBSTONE, 'released', 'PX', MEMORY)
  end
  if INDEX then
    redis.call('ZREM', INDEX, NAME)
  end
  return {'OK', false}
end

--- prelude
-- Have the name taken for so long, by one who no longer holds the lock: no copy of whatever he
-- sent finds his token there.
local function keep(left)
  local kept = KEPT .. ARGV[1]
  local _, owner, holder = read_meta(token_at(META) or '')
  -- A write that is allowed makes the rest allowed, on a server that is out of memory.
  redis.call('PEXPIRE', NAME, left)
  -- Nobody will hand the lock on: whoever waits sleeps until then, and not one of them longer.
  for _, token in ipairs(redis.call('ZRANGE', WAITERS, 0, -1)) do
    local alive, _, again = read_waiter(token)
    if alive and alive >= now_ms() and again > now_ms() + left then
      wake(token)
    end
  end
  redis.call('SET', META,
    table.concat({ARGV[4], #kept, kept, owner == ARGV[1] and holder or '', ''}, ' '),
    'PX', left + META_MARGIN)
  redis.call('SET', TOMBSTONE, 'released', 'PX', MEMORY)
  if INDEX then
    redis.call('ZADD', INDEX, now_ms() + left, NAME)
  end
  redis.call('SET', NAME, kept, 'PX', left)
end

if is_mine and ARGV[3] then
  -- A fence is the time of the grant, or later where the clock was stepped back.
  local left = ARGV[3] + math.min(math.ceil(ARGV[4] / 1000) - now_ms(), 0)
  if left > 0 then
    keep(left)
    return {'OK', false}
  end
end
if is_mine then
  -- Deletes first: they are allowed, and make the rest allowed, on a server that is out of memory.
  local head = hand_on()
  if not head then
    redis.call('DEL', NAME)
    if INDEX then
      redis.call('ZREM', INDEX, NAME)
    end
  end
  let_go(ARGV[1])
  if ARGV[2] ~= 'once' then
    redis.call('SET', TOMBSTONE, 'released', 'PX', MEMORY)
  end
  return {'OK', head}
end
local token, value = ARGV[1], token_at(NAME)
leave_queue(token)
drop_mail(token)
local mark = redis.call('GET', TOMBSTONE)
local head = baton_for(value)
if head == token then
  redis.call('DEL', NAME)
end
if not mark then
  mark = 'left'
  if ARGV[2] == 'again' then
    local meta = token_at(META) or ''
    local _, owner = read_meta(meta)
    -- An earlier copy of this request has let it go, unless it was lost: that is remembered if another had it since.
    local is_known = owner and string.sub(owner, 1, #HOSTED) ~= HOSTED
    mark = is_known and (owner ~= token or has_let_go(meta)) and 'released' or mark
  end
  -- Lost: a copy of the acquire that is still on the wire must not take it again. (Out of memory, it may.)
  redis.pcall('SET', TOMBSTONE, mark, 'PX', MEMORY)
end
if head == token or not value then
  head = hand_on()
end
if mark == 'released' then
  return {'OK', head or false}
end
return {'LOST', mark, head or false}
