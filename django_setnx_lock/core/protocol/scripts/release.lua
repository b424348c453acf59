-- Let the lock go, or give up an attempt at it. Sent twice, it is done once.
-- ARGV  1 token  2 '' a release; 'repeat' and a copy of a request of this token may still be under way; 'cancel' whatever it
--       may have been granted; 'doubt' and a copy may still be under way  3 for how many ms from the grant on nobody else is
--       to have it, if it is held alone
-- Reply 1  {'OK', whom it was given to or roused, or false}  {'LOST', who forced it and why (JSON), or false, whom it was given to, or false}
--- head
if ARGV[2] == '' and not ARGV[3] and redis.pcall('GET', NAME) == token and redis.call('EXISTS', BESIDE .. 'waiters') == 0 then
  redis.call('DEL', NAME)
  if INDEX then
    redis.pcall('ZREM', INDEX, NAME)
  end
  return 1
end
--- lib
local rest, was_held, value, group = 0, false, nil, nil
if ARGV[3] and redis.pcall('GET', NAME) == token then
  local fence, _, record = read_meta()
  rest = math.min(ARGV[3] - (now - math.floor(fence / 1000)), ARGV[3])
  if rest > 0 then
    -- The name stays taken, by nobody, for what is left of that.
    was_held, value = true, 'kept:' .. whole(fence)
    redis.call('SET', META, whole(fence) .. ' ' .. value .. ' ' .. (record or ''), 'PX', whole(rest + MEMORY))
    redis.call('SET', NAME, value, 'PX', whole(rest))
    list(now + rest)
  end
end
if not was_held then
  was_held, value, group = drop(token)
end
if (ARGV[2] ~= '' and leave_queue(token) or was_held) and value then
  rest = redis.call('PTTL', NAME) -- that is sooner than others were told, or this one alone was told so
end
if ARGV[2] == 'doubt' or ARGV[2] == 'repeat' then
  refuse(token)
end
local given = (not value or group) and admit(value, group) or rest > 0 and rouse(rest) or false
if INDEX and not value and not given then
  redis.pcall('ZREM', INDEX, NAME)
end
if was_held or ARGV[2] == 'cancel' or ARGV[2] == 'doubt' then
  return {'OK', given}
end
return {'LOST', redis.call('HGET', BESIDE .. 'forced', token), given}
