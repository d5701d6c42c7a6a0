-- Divide one rate among clients: the rule of `RateCoordinator` in shared_rate.py, with the same names and numbers.
--
-- KEYS[1] holds the state. ARGV is the client's id, then `seconds`, `wanted`, `completed`, `refused` and `retry_after` of its
-- usage, then the limit and the clock in seconds. An empty limit means none; an empty clock means the server's time. The reply
-- is `rate`, `expires_in` and `hold` of the client's share, as strings.

local LIFETIME = 1.5
local INITIAL_RATE = 10
local SEARCH_FACTOR = 1.5
local SMOOTHING = 0.5
local DEMAND_DECAY = 1
local MIN_PERIOD = 0.1
local HEADROOM = 1.25
local IDLE_SHARE = 1
local KEY_LIFETIME = 600000 -- milliseconds; a learned limit is forgotten ten minutes after the last report

local BETA = 0.8

-- The numbers of `CubicLimit`
local FLOOR = 0.1
local SPACING = 0.5
local DEFAULT_RATE = 1
local RECOVERY_TIME = 7.2
local MIN_RECOVERY_REQUESTS = 20
local RECOVERY_PER_RETRY_AFTER = 40
local MAX_RECOVERY_TIME = 60
local FIRST_RECOVERY_TIME = 1
local MAX_RECOVERY_GROWTH = 2.7
local MAX_LAG = 1.25
local PROBING_FACTOR = 30
local MAX_LEAD = 2
local INITIAL_LEAD = 10
local MAX_FUTILE_CUTS = 2
local REFUSED_INTERVAL_DIVISOR = 8

local NEVER = -1e300 -- earlier than any time; infinity would not survive the arithmetic of `since`

local function refuses_everything(learned, achieved)
  return learned.futile_cuts > MAX_FUTILE_CUTS or (learned.futile_cuts > 1 and achieved == 0)
end

local function cut(learned, now, achieved, retry_after)
  if learned.futile_cuts == 0 then learned.futile_since = now end
  learned.futile_cuts = learned.futile_cuts + 1
  learned.cut_at = now
  local peak
  if not learned.limit then
    peak, learned.recovery_time = math.max(achieved, DEFAULT_RATE), FIRST_RECOVERY_TIME
  elseif refuses_everything(learned, achieved) then
    local interval = math.max(SPACING, now - learned.futile_since)
    learned.limit = math.max(FLOOR, math.min(learned.limit, REFUSED_INTERVAL_DIVISOR / interval))
    return
  else
    peak = math.max(FLOOR / BETA, math.min(learned.limit, MAX_LAG * achieved))
    local recovery_time = math.max(RECOVERY_TIME, MIN_RECOVERY_REQUESTS / peak, RECOVERY_PER_RETRY_AFTER * retry_after)
    learned.recovery_time = math.min(recovery_time, MAX_RECOVERY_TIME, MAX_RECOVERY_GROWTH * learned.recovery_time)
  end
  learned.peak = peak
  learned.since = now
  learned.limit = BETA * peak
end

local function grow(learned, now, achieved)
  if not learned.limit then return end
  if learned.futile_cuts > 0 then
    if refuses_everything(learned, achieved) then
      learned.peak, learned.recovery_time, learned.since = DEFAULT_RATE, FIRST_RECOVERY_TIME, now
    end
    learned.futile_cuts = 0
  end
  local lead = MAX_LEAD * achieved
  if learned.recovery_time == FIRST_RECOVERY_TIME then
    lead = math.max(lead, INITIAL_LEAD)
    if now - learned.cut_at < SPACING then learned.peak = math.max(learned.peak, achieved) end
  end
  local x = (now - learned.since) / learned.recovery_time - 1
  local rise = (1 - BETA) * x ^ 3 * (x > 0 and PROBING_FACTOR or 1)
  learned.limit = math.max(learned.limit, math.min(learned.peak * (1 + rise), lead))
end

local function sum(clients, field)
  local total = 0
  for _, client in pairs(clients) do total = total + client[field] end
  return total
end

local function total_rate(state, limit)
  if not state.learned.limit then return limit or state.search_rate end
  return math.min(limit or math.huge, state.learned.limit)
end

local function observe(state, usage)
  if usage.retry_after > 0 then state.hold_until = math.max(state.hold_until, state.time + usage.retry_after) end
  local demand = usage.wanted / math.max(usage.seconds, MIN_PERIOD)
  local achieved = usage.completed / math.max(usage.seconds, MIN_PERIOD)
  local client = state.clients[usage.client]
  if not client then
    state.clients[usage.client] = {seen = state.time, demand = demand, achieved = achieved}
    return state.time
  end
  local told_at = client.seen
  client.seen = state.time
  local decay = usage.seconds / (usage.seconds + DEMAND_DECAY)
  client.demand = math.max(demand, client.demand + (demand - client.demand) * decay)
  if state.time - usage.seconds >= state.hold_until then
    client.achieved = client.achieved + (achieved - client.achieved) * usage.seconds / (usage.seconds + SMOOTHING)
  end
  return told_at
end

local function learn(state, usage, told_at, unused)
  local learned, achieved = state.learned, sum(state.clients, 'achieved')
  learned.since = learned.since + unused
  state.search_rate = math.max(state.search_rate, SEARCH_FACTOR * achieved)
  if usage.completed > 0 then grow(learned, state.time, achieved) end
  if usage.refused > 0 and told_at >= learned.cut_at and state.time - learned.cut_at >= SPACING then
    cut(learned, state.time, achieved, usage.retry_after)
  end
end

local function water_level(rate, clients)
  local demands = {}
  for _, client in pairs(clients) do demands[#demands + 1] = client.demand end
  table.sort(demands)
  local remaining = rate
  for index, demand in ipairs(demands) do
    local level = remaining / (#demands - index + 1)
    if demand > level then return level end
    remaining = remaining - demand
  end
  return math.huge
end

local function share(state, name, limit)
  local total, demand = total_rate(state, limit), state.clients[name].demand
  local level = water_level(total, state.clients)
  local rate
  if demand >= level then
    rate = level
  else
    local count = 0
    for _ in pairs(state.clients) do count = count + 1 end
    local unused = math.max(0, total - sum(state.clients, 'demand'))
    local headroom = math.min(level, total, math.max(IDLE_SHARE, HEADROOM * demand))
    rate = math.max(headroom, demand + unused / count)
  end
  local place = 0
  for other in pairs(state.clients) do
    if other < name then place = place + 1 end
  end
  return rate, LIFETIME, math.max(0, state.hold_until + place / total - state.time)
end

local function step(state, usage, limit, clock)
  local elapsed = state.clock and math.max(0, clock - state.clock) or 0
  state.clock = clock
  state.time = state.time + elapsed
  for name, client in pairs(state.clients) do
    if state.time - client.seen >= LIFETIME then state.clients[name] = nil end
  end
  local is_held = state.time < state.hold_until
  local told_at = observe(state, usage)
  local is_unused = is_held or sum(state.clients, 'demand') < total_rate(state, limit)
  learn(state, usage, told_at, is_unused and elapsed or 0)
  return share(state, usage.client, limit)
end

local function new_state()
  return {
    time = 0,
    hold_until = NEVER,
    search_rate = INITIAL_RATE,
    clients = {},
    learned = {cut_at = NEVER, since = NEVER, futile_since = NEVER, peak = 0, recovery_time = 0, futile_cuts = 0},
  }
end

local function server_clock()
  local now = redis.call('TIME')
  return now[1] + now[2] / 1e6
end

local NOT_A_STATE = {err = 'WRONGTYPE The value is not the state of a rate'}

local stored = redis.pcall('GET', KEYS[1])
if type(stored) == 'table' then return stored end -- the error of a value that is no string
local is_readable, state = true, nil
if stored then is_readable, state = pcall(cmsgpack.unpack, stored) else state = new_state() end
if not is_readable then return NOT_A_STATE end
local usage = {
  client = ARGV[1],
  seconds = tonumber(ARGV[2]),
  wanted = tonumber(ARGV[3]),
  completed = tonumber(ARGV[4]),
  refused = tonumber(ARGV[5]),
  retry_after = tonumber(ARGV[6]),
}
local clock = tonumber(ARGV[8]) or server_clock()
-- A value of another program, or of another version of the script, is never overwritten.
local is_state, rate, expires_in, hold = pcall(step, state, usage, tonumber(ARGV[7]), clock)
if not is_state then return NOT_A_STATE end
redis.call('SET', KEYS[1], cmsgpack.pack(state), 'PX', KEY_LIFETIME)
return {string.format('%.17g', rate), string.format('%.17g', expires_in), string.format('%.17g', hold)}
