import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Latest, type IResponse } from '../src/protocol/latest';

interface IScope {
  readonly variablesReference: number;
}

/** As much of JupyterLab's debugger service as matters here: it shows what is answered last. */
class Service {
  isOurs = true;
  threadId: number | undefined;
  frameId: number | undefined;
  variables = '';

  constructor(readonly kernel: Kernel) {
    this._latest = new Latest(kernel.request, () => this);
  }

  async stopped(threadId: number): Promise<void> {
    this.threadId = threadId;
    await this.frames();
  }

  async frames(): Promise<void> {
    const { body } = await this._latest.request('stackTrace', { threadId: this.threadId });
    const [frame] = (body as { stackFrames: { id: number }[] }).stackFrames;
    if (frame) {
      await this.choose(frame.id);
    }
  }

  async choose(frameId: number): Promise<void> {
    this.frameId = frameId;
    const scopes = await this._latest.request('scopes', { frameId });
    const [scope] = (scopes.body as { scopes: IScope[] }).scopes;
    const answer = await this._latest.request('variables', { ...scope });
    this.variables = answer.body as string;
  }

  private readonly _latest: Latest;
}

/** Thread n has the frame 10 n, that the scope 100 n; a test says when a rank answers. */
class Kernel {
  readonly asked: { command: string; number: number; answer: () => Promise<void> }[] = [];

  readonly request = (command: string, args: object): Promise<IResponse> => {
    const [number] = Object.values(args) as [number];
    const body = {
      stackTrace: { stackFrames: [{ id: 10 * number }] },
      scopes: { scopes: [{ variablesReference: 10 * number }] },
      variables: `of ${number}`
    }[command];
    return new Promise(done => {
      const answer = (): Promise<void> => {
        done({ success: true, body });
        return settled();
      };
      this.asked.push({ command, number, answer });
    });
  };

  /** Answer the oldest question of this kind about this. */
  answer(command: string, number: number): Promise<void> {
    const at = this.asked.findIndex(each => each.command === command && each.number === number);
    assert.notEqual(at, -1, `${command} ${number} is not asked`);
    return this.asked.splice(at, 1)[0]!.answer();
  }

  async answerAll(): Promise<void> {
    while (this.asked.length > 0) {
      await this.asked.shift()!.answer();
    }
  }
}

const settled = (): Promise<void> => new Promise(done => setImmediate(done));

function start(): [Service, Kernel] {
  const kernel = new Kernel();
  return [new Service(kernel), kernel];
}

test('variables of the former frame that come last are not shown', async () => {
  const [service, kernel] = start();
  void service.stopped(2);
  await kernel.answer('stackTrace', 2);
  await kernel.answer('scopes', 20);
  void service.stopped(3);
  await kernel.answer('stackTrace', 3);
  await kernel.answer('scopes', 30);
  await kernel.answer('variables', 300);
  assert.equal(service.variables, 'of 300');
  await kernel.answer('variables', 200); // that rank was slow
  assert.equal(service.variables, 'of 300');
});

test('nor are its scopes asked on', async () => {
  const [service, kernel] = start();
  void service.stopped(2);
  await kernel.answer('stackTrace', 2);
  void service.stopped(3);
  await kernel.answer('stackTrace', 3);
  await kernel.answer('scopes', 30);
  await kernel.answer('variables', 300);
  await kernel.answer('scopes', 20);
  assert.deepEqual(kernel.asked, []);
  assert.equal(service.variables, 'of 300');
});

test('frames of the former thread: those of the shown one instead, and who asked goes on', async () => {
  const [service, kernel] = start();
  void service.stopped(2);
  void service.stopped(3);
  await kernel.answer('stackTrace', 3);
  await kernel.answer('scopes', 30);
  await kernel.answer('variables', 300);
  await kernel.answer('stackTrace', 2);
  assert.deepEqual([service.frameId, service.variables], [30, 'of 300']);
  await kernel.answerAll(); // asked once more, of thread 3
  assert.deepEqual([service.frameId, service.variables], [30, 'of 300']);
});

test('frames of a thread that runs again are none', async () => {
  const [service, kernel] = start();
  void service.stopped(2);
  service.threadId = undefined;
  await kernel.answer('stackTrace', 2);
  assert.deepEqual([kernel.asked, service.frameId], [[], undefined]);
});

test('chosen, and chosen back: it is shown', async () => {
  const [service, kernel] = start();
  void service.choose(20);
  void service.choose(30);
  void service.choose(20);
  await kernel.answer('scopes', 30);
  await kernel.answerAll();
  assert.equal(service.variables, 'of 200');
});

test('what is asked of a frame that is not shown, and what one expands, is answered', async () => {
  const [service, kernel] = start();
  service.frameId = 20;
  const latest = new Latest(kernel.request, () => service);
  const other = latest.request('scopes', { frameId: 70 });
  const expanded = latest.request('variables', { variablesReference: 5 });
  await kernel.answerAll();
  assert.deepEqual((await other).body, { scopes: [{ variablesReference: 700 }] });
  assert.equal((await expanded).body, 'of 5');
});

test('with a plain kernel all is as it was', async () => {
  const [service, kernel] = start();
  service.isOurs = false;
  void service.stopped(2);
  await kernel.answer('stackTrace', 2);
  await kernel.answer('scopes', 20);
  void service.choose(30);
  await kernel.answer('scopes', 30);
  await kernel.answer('variables', 300);
  await kernel.answer('variables', 200);
  assert.equal(service.variables, 'of 200');
});
