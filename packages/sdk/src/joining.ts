/** What somebody needs once, to become a member: apart, so that a page loads it only then. */
export { type DeviceMembership, joinAsDevice } from './device-join.ts'
export { type JoinOptions, join, type Membership } from './join.ts'
